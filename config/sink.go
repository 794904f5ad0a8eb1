package config

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"snowmelt/core/mapping"
)

// sink types the settings of one sink pipeline.
func (b *builder) sink(name string, s scope) Sink {
	out := Sink{
		Name: name, Instance: s.instance(), Kafka: s.kafka(), Topics: s.list("topics"),
		Group: strings.ReplaceAll(s.text("snow.sink.group.id"), "<pipeline>", name), InstanceID: s.text("group.instance.id"),
		SessionTimeout: s.millis("group.session.timeout.ms"), RebalanceTimeout: s.millis("group.rebalance.timeout.ms"),
		OffsetReset: s.text("snow.sink.auto.offset.reset"), ReadCommitted: s.text("snow.sink.isolation.level") == "read_committed",
		MaxInFlight: s.num("snow.sink.max.in.flight"), MaxPending: s.num("snow.sink.lane.max.pending"),
		CommitInterval: s.millis("snow.sink.commit.interval.ms"), CreateAmbiguous: s.text("snow.sink.create.ambiguous.behavior"),
		NotFound: s.text("snow.sink.not.found.behavior"), OnErrors: s.text("behavior.on.api.errors"),
		Redelivered: s.text("snow.sink.redelivered.create.behavior"), Settle: s.millis("snow.sink.settle.ms"),
		SuccessTopic: s.text("snow.sink.reporter.success.topic"), ErrorTopic: s.text("snow.sink.reporter.error.topic"),
		ReportBody: s.yes("snow.sink.reporter.include.request.body"), ContextHeaders: s.yes("errors.deadletterqueue.context.headers.enable"),
		DeadLetterReplication: s.num("errors.deadletterqueue.topic.replication.factor"),
	}
	for _, status := range s.list("snow.sink.create.ambiguous.statuses") {
		n, _ := strconv.Atoi(status) // checked with the key
		out.Statuses = append(out.Statuses, n)
	}
	if len(out.Topics) == 0 {
		b.fail(s.shown("topics"), "", "required, but not set", "topic names")
	}
	if s.text("errors.tolerance") == "all" {
		if out.DeadLetterTopic = s.text("errors.deadletterqueue.topic.name"); out.DeadLetterTopic == "" {
			b.fail(s.shown("errors.deadletterqueue.topic.name"), "", "needed with errors.tolerance=all", "a topic name")
		}
	}
	for key, topic := range map[string]string{
		"errors.deadletterqueue.topic.name": out.DeadLetterTopic, "snow.sink.reporter.success.topic": out.SuccessTopic, "snow.sink.reporter.error.topic": out.ErrorTopic,
	} {
		if topic != "" && slices.Contains(out.Topics, topic) {
			b.fail(s.shown(key), topic, "is an input topic too: the sink would consume what it writes", "another topic")
		}
	}
	if out.MaxInFlight > out.Instance.MaxConcurrent {
		b.fail(s.shown("snow.sink.max.in.flight"), strconv.Itoa(out.MaxInFlight), "larger than snow.http.max.concurrent.requests",
			"at most "+strconv.Itoa(out.Instance.MaxConcurrent))
	}
	out.Mapping = b.mapping(s)
	return out
}

// mapping types the policies of a record's way to its request.
func (b *builder) mapping(s scope) mapping.Settings {
	m := mapping.Settings{
		Table: s.needed("snow.sink.table"), OperationMode: s.text("snow.sink.operation.mode"), Fixed: mapping.Operation(strings.ToUpper(s.text("snow.sink.operation.fixed"))),
		OperationHeader: s.text("snow.sink.operation.header"), HeaderRequired: s.yes("snow.sink.operation.header.required"),
		UpdateMethod: mapping.Operation(s.text("snow.sink.update.method")), KeyField: s.text("snow.sink.sys.id.key.field"),
		ValueField: s.text("snow.sink.sys.id.value.field"), Precedence: s.text("snow.sink.sys.id.precedence"),
		Null: s.text("snow.sink.null.behavior"), Nested: s.text("snow.sink.nested.behavior"), Delimiter: s.text("snow.sink.nested.flatten.delimiter"),
		Unknown: s.text("snow.sink.unknown.field.behavior"), Allow: s.list("snow.sink.field.allowlist"), Deny: s.list("snow.sink.field.denylist"),
		TableHeader: s.text("snow.sink.table.header"),
	}
	m.IDPattern, _ = regexp.Compile(s.text("snow.sink.sys.id.pattern")) // checked with the key
	if m.OperationMode == "fixed" && m.Fixed == "" {
		b.fail(s.shown("snow.sink.operation.fixed"), "", "needed with snow.sink.operation.mode=fixed", "create, patch, put, delete")
	}
	if len(m.Allow) > 0 && len(m.Deny) > 0 {
		b.fail(s.shown("snow.sink.field.denylist"), strings.Join(m.Deny, ","), "not together with snow.sink.field.allowlist", "one of the two")
	}
	for _, pair := range s.list("snow.sink.field.rename") {
		from, to, ok := strings.Cut(pair, ":")
		if !ok || from == "" || to == "" {
			b.fail(s.shown("snow.sink.field.rename"), pair, "not a rename", "from:to")
			continue
		}
		m.Rename = append(m.Rename, [2]string{from, to})
	}
	return m
}
