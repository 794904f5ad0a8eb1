package config

import (
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"snowmelt/core/cursor"
	"snowmelt/core/failure"
)

// Load reads, validates and types a configuration. Its error is an *Error that
// holds every problem at once.
func Load(in Input) (Config, error) {
	l := read(in)
	e, problems := l.effective(in)
	b := builder{problems: problems}
	cfg := b.config(e)
	if len(b.problems) > 0 {
		slices.SortStableFunc(b.problems, func(a, c Problem) int { return strings.Compare(a.Key, c.Key) })
		return Config{}, &Error{b.problems}
	}
	cfg.Notes = l.notes
	return cfg, nil
}

// builder turns settings into typed ones and collects what is wrong.
type builder struct {
	problems []Problem
	shared   map[string]Setting
}

func (b *builder) fail(key, value, problem, allowed string) {
	b.problems = append(b.problems, Problem{Key: key, Value: value, Problem: problem, Allowed: allowed})
}

func (b *builder) config(settings []Setting) Config {
	b.shared = map[string]Setting{}
	scopes := map[string]map[string]Setting{}
	for _, s := range settings {
		if s.Scope == "" {
			b.shared[s.Name] = s
			continue
		}
		if scopes[s.Scope] == nil {
			scopes[s.Scope] = map[string]Setting{}
		}
		scopes[s.Scope][s.Name] = s
	}
	global := b.scope("", nil)
	cfg := Config{
		AdminAddress: global.text("admin.address"), AdminToken: global.text("admin.token"),
		ShutdownTimeout: global.millis("engine.shutdown.timeout.ms"), HoldOnFailure: global.text("engine.on.failure") == "hold",
		FatalStopsProcess: global.text("engine.on.fatal") == "process",
		LogLevel:          global.text("log.level"), LogFormat: global.text("log.format"),
	}
	for _, name := range slices.Sorted(maps.Keys(scopes)) {
		kind, pipeline, _ := strings.Cut(name, delimiter)
		switch kind {
		case "sources":
			cfg.Sources = append(cfg.Sources, b.source(pipeline, b.scope(name, scopes[name])))
		case "sinks":
			cfg.Sinks = append(cfg.Sinks, b.sink(pipeline, b.scope(name, scopes[name])))
		}
	}
	if len(cfg.Sources)+len(cfg.Sinks) == 0 && len(b.problems) == 0 {
		b.fail("sources", "", "no pipeline is configured", "at least one of sources.NAME or sinks.NAME")
	}
	b.duplicates(cfg)
	b.names(cfg)
	b.strays(cfg)
	return cfg
}

// strays refuses settings at the top for a table that no pipeline has.
func (b *builder) strays(cfg Config) {
	for _, name := range slices.Sorted(maps.Keys(b.shared)) {
		k, alias, _ := match(tableKeys, name)
		if !strings.HasPrefix(k.Name, "snow.table.<") {
			continue
		}
		used := slices.ContainsFunc(cfg.Sources, func(s Source) bool {
			return slices.ContainsFunc(s.Tables, func(t Table) bool { return t.Alias == alias })
		})
		if !used {
			b.fail(name, b.shared[name].Shown(), fmt.Sprintf("no pipeline has the alias %q in snow.tables", alias), "")
		}
	}
}

// scope reads the keys of one pipeline: its own, then the shared, then the default.
type scope struct {
	b    *builder
	name string
	own  map[string]Setting
	keys []Key
}

func (b *builder) scope(name string, own map[string]Setting) scope {
	return scope{b, name, own, Keys()}
}

func (s scope) set(name string) (Setting, bool) {
	if v, ok := s.own[name]; ok {
		return v, true
	}
	v, ok := s.b.shared[name]
	return v, ok
}

func (s scope) text(name string) string {
	if v, ok := s.set(name); ok {
		return v.Value
	}
	k, _, ok := match(s.keys, name)
	if !ok {
		panic("no such key: " + name)
	}
	if k.required {
		return ""
	}
	return k.Default
}

func (s scope) needed(name string) string {
	v := s.text(name)
	if v == "" {
		s.missing(name)
	}
	return v
}

// missing says that a key is not set, unless it is and was refused.
func (s scope) missing(name string) {
	refused := slices.ContainsFunc(s.b.problems, func(p Problem) bool { return p.Key == name || p.Key == s.shown(name) })
	if !refused {
		k, _, _ := match(s.keys, name)
		s.b.fail(s.shown(name), "", "required, but not set", k.Valid)
	}
}

func (s scope) shown(name string) string {
	if s.name == "" {
		return name
	}
	return strings.ReplaceAll(s.name, delimiter, ".") + "." + name
}

// num returns a whole number. Values were checked already; a number that is not set and has no default is 0.
func (s scope) num(name string) int {
	n, _ := strconv.ParseFloat(s.text(name), 64)
	return int(n)
}

// millis returns a duration; what is longer than one can be is the longest.
func (s scope) millis(name string) time.Duration {
	return time.Duration(min(s.num(name), math.MaxInt64/int(time.Millisecond))) * time.Millisecond
}

func (s scope) yes(name string) bool { return s.text(name) == "true" }

func (s scope) list(name string) []string { return splitList(s.text(name)) }

func (s scope) instance() Instance {
	i := Instance{
		Username: s.needed("snow.auth.username"), Password: s.needed("snow.auth.password"),
		UserAgent: s.text("snow.http.user.agent"), MaxConcurrent: s.num("snow.http.max.concurrent.requests"),
		MaxPerHour: s.num("snow.http.max.requests.per.hour"), Adaptive: s.yes("snow.http.adaptive.throttling"),
		ConnectTimeout: s.millis("snow.http.connect.timeout.ms"), RequestTimeout: s.millis("snow.http.request.timeout.ms"),
		BodyIdle: s.millis("snow.http.body.idle.timeout.ms"), MaxResponse: int64(s.num("snow.http.max.response.bytes")),
		AllowPlaintext: s.yes("snow.http.allow.plaintext"),
		Retry: failure.Retry{
			MaxAttempts: s.num("snow.retry.max.attempts"), MaxElapsed: s.millis("snow.retry.max.elapsed.ms"),
			Initial: s.millis("snow.retry.initial.backoff.ms"), Max: s.millis("snow.retry.max.backoff.ms"),
		},
	}
	if address := s.needed("snow.url"); address != "" {
		i.URL, _ = url.Parse(address) // checked with the key
		i.URL = &url.URL{Scheme: i.URL.Scheme, Host: i.URL.Host}
	}
	return i
}

// kafka returns the client settings, shared ones first.
func (s scope) kafka() map[string]string {
	out := map[string]string{}
	for _, from := range []map[string]Setting{s.b.shared, s.own} {
		for name, v := range from {
			if rest, ok := strings.CutPrefix(name, "kafka."); ok {
				out[rest] = v.Value
			}
		}
	}
	if out["bootstrap.servers"] == "" {
		s.missing("kafka.bootstrap.servers")
	}
	return out
}

func (b *builder) source(name string, s scope) Source {
	src := Source{
		Name: name, Instance: s.instance(), Kafka: s.kafka(), ExactlyOnce: s.text("snow.source.delivery") == "exactly_once",
		SchemaMode: s.text("snow.source.schema.mode"), Probe: s.yes("snow.source.startup.probe"),
		SkipBadRows: s.text("snow.source.bad.row.behavior") == "skip", ProvePages: s.yes("snow.source.prove.pages"),
		AllowExpiring: s.yes("snow.source.allow.expiring.topics"), Overlap: s.num("snow.source.overlap.seconds"),
		SafetyLag: s.num("snow.source.safety.lag.seconds"), LateWindow: s.num("snow.source.late.window.seconds"),
		LateInterval: s.millis("snow.source.late.check.interval.ms"), VerifiedInterval: s.millis("snow.source.verified.interval.ms"),
		DedupWindow: s.num("snow.source.dedup.window.records"), PublishersMax: s.num("snow.source.publishers.max"),
		TransactionTimeout: s.millis("snow.source.transaction.timeout.ms"), TransactionalIDPrefix: s.text("transactional.id.prefix"),
		OffsetTopic: s.text("offset.storage.topic"), OffsetPartitions: s.num("offset.storage.partitions"),
		OffsetReplication: s.num("offset.storage.replication.factor"), CreateTopics: s.yes("topic.creation.enable"),
		TopicPartitions: s.num("topic.creation.default.partitions"), TopicReplication: s.num("topic.creation.default.replication.factor"),
		TableRestart:  s.millis("snow.source.table.restart.interval.ms"),
		TopicSettings: map[string]string{"retention.ms": s.text("topic.creation.default.retention.ms")},
	}
	for _, from := range []map[string]Setting{b.shared, s.own} {
		for n, v := range from {
			rest, ok := strings.CutPrefix(n, "topic.creation.default.")
			if ok && rest != "partitions" && rest != "replication.factor" {
				src.TopicSettings[rest] = v.Value
			}
		}
	}
	aliases := s.list("snow.tables")
	if len(aliases) == 0 {
		s.missing("snow.tables")
	}
	for i, alias := range aliases {
		if slices.Contains(aliases[:i], alias) {
			b.fail(s.shown("snow.tables"), alias, "the alias stands in the list twice", "")
			continue
		}
		src.Tables = append(src.Tables, b.table(alias, s))
	}
	for n, v := range s.own {
		if _, alias, ok := match(tableKeys, n); ok && strings.HasPrefix(n, "snow.table.") && !slices.Contains(aliases, alias) {
			b.fail(s.shown(n), v.Raw, fmt.Sprintf("the alias %q is not in snow.tables", alias), strings.Join(slices.Compact(slices.Sorted(slices.Values(aliases))), ", "))
		}
	}
	return src
}

func (b *builder) table(alias string, s scope) Table {
	k := func(name string) string { return "snow.table." + alias + "." + name }
	t := Table{
		Alias: alias, Name: s.needed(k("name")), Topic: s.needed(k("topic")), TimestampField: s.text(k("timestamp.field")),
		IDField: s.text(k("sys.id.field")), Query: s.text(k("query")), Fields: s.list(k("fields")), DisplayValue: s.text(k("display.value")),
		ExcludeReferenceLink: s.yes(k("exclude.reference.link")), QueryDomain: s.yes(k("query.domain")), QueryCategory: s.text(k("query.category")),
		BatchSize: s.num(k("batch.size")), PollInterval: s.millis(k("poll.interval.ms")),
	}
	if t.BatchSize == 0 {
		t.BatchSize = s.num("snow.source.batch.size")
	}
	if t.PollInterval == 0 {
		t.PollInterval = s.millis("snow.source.poll.interval.ms")
	}
	t.Start, _ = cursor.ParseTimestamp(s.text(k("start.timestamp")))
	var err error
	if t.Parsed, err = cursor.ParseQuery(t.Query); err != nil {
		b.fail(s.shown(k("query")), t.Query, err.Error(), "")
	}
	if len(t.Fields) > 0 {
		for _, field := range []string{t.IDField, t.TimestampField} {
			if !slices.Contains(t.Fields, field) {
				b.fail(s.shown(k("fields")), strings.Join(t.Fields, ","), "lacks the cursor field "+field, "a list that holds "+t.IDField+" and "+t.TimestampField)
			}
		}
		if !slices.Contains(t.Fields, "sys_mod_count") {
			t.Fields = append(t.Fields, "sys_mod_count")
		}
	}
	for _, unbounded := range []string{"sys_audit", "sys_audit_relation", "sys_history_line"} {
		if t.Name == unbounded && t.Query == "" {
			b.fail(s.shown(k("query")), "", unbounded+" is too large to be read whole", "a query that narrows it, for example by tablename")
		}
	}
	return t
}

// names refuses a source and a sink of one name: status, metrics and messages tell pipelines apart by it.
func (b *builder) names(cfg Config) {
	for _, s := range cfg.Sources {
		for _, k := range cfg.Sinks {
			if s.Name == k.Name {
				b.fail("sinks."+k.Name, "", "a source has the same name", "another name")
			}
		}
	}
}

// duplicates refuses two aliases on one cursor (source.md rule 13): table,
// query, domain flag and timestamp field are the same on the same instance.
func (b *builder) duplicates(cfg Config) {
	for _, s := range cfg.Sources {
		seen := map[string]string{}
		for _, t := range s.Tables {
			key := t.TimestampField + "\n" + cursor.Fingerprint(t.Name, t.Query, t.QueryDomain)
			if other, ok := seen[key]; ok {
				b.fail("sources."+s.Name+".snow.table."+t.Alias+".name", t.Name,
					"the same table, query, domain flag and timestamp field as alias "+other+": they would share one cursor", "a difference in one of them")
			}
			seen[key] = t.Alias
		}
	}
}
