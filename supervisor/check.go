package supervisor

import (
	"context"
	"errors"
	"time"

	"snowmelt/actors/poller"
	"snowmelt/config"
	"snowmelt/core/cursor"
	"snowmelt/core/failure"
	"snowmelt/core/kafka"
)

// Report is what Check found, in the shape that `snowmelt check --output json` promises.
type Report struct {
	OK     bool             `json:"ok"`
	Errors []config.Problem `json:"errors"`
	Tables []TableReport    `json:"tables"`
	Kafka  KafkaReport      `json:"kafka"`
}

// TableReport is the probe of one table.
type TableReport struct {
	Alias   string `json:"alias"`
	Table   string `json:"table"`
	OK      bool   `json:"ok"`
	Problem string `json:"problem"`
	Hint    string `json:"hint"`
	// RowsEstimate counts hidden rows too; -1 when the instance did not say.
	RowsEstimate int `json:"rows_estimate"`
	// TimeZoneOK is false when the instance does not read times as UTC.
	TimeZoneOK bool `json:"time_zone_ok"`
	// InvalidTermsIgnored says that the instance drops terms it cannot parse and returns more rows.
	InvalidTermsIgnored bool `json:"invalid_terms_ignored"`
}

// KafkaReport says whether brokers and topics are fit.
type KafkaReport struct {
	OK      bool   `json:"ok"`
	Problem string `json:"problem"`
}

// Check probes the instance and the brokers of a configuration. It changes
// nothing: missing topics that a run would create are not created.
func Check(ctx context.Context, cfg config.Config, opts ...Option) (Report, error) {
	e, err := New(cfg, opts...)
	if err != nil {
		return Report{}, err
	}
	defer e.closeClients()
	r := Report{OK: true, Errors: []config.Problem{}, Tables: []TableReport{}, Kafka: KafkaReport{OK: true}}
	for i, s := range cfg.Sources {
		cluster := e.clusters[i]
		for _, t := range s.Tables {
			client, err := e.client(s.Instance)
			if err != nil {
				return Report{}, err
			}
			pc := e.pollerConfig(s, t, client, cluster, kafka.NewPool(1), "")
			report := checkTable(ctx, pc)
			r.Tables = append(r.Tables, report)
			r.OK = r.OK && report.OK
		}
		if err := checkTopics(ctx, cluster, s); err != nil {
			r.OK, r.Kafka = false, KafkaReport{Problem: err.Error()}
		}
	}
	for i, s := range cfg.Sinks {
		t := TableReport{Alias: s.Name, Table: s.Mapping.Table, OK: true, RowsEstimate: -1, TimeZoneOK: true}
		client, err := e.client(s.Instance)
		if err != nil {
			return Report{}, err
		}
		if s.Mapping.Unknown != "passthrough" {
			if _, err := client.TableFields(ctx, s.Mapping.Table); err != nil {
				t.failed(err)
			}
		}
		if s.OnErrors != "fail" && s.ErrorTopic == "" && s.DeadLetterTopic == "" && t.OK {
			t.Hint = "behavior.on.api.errors=" + s.OnErrors + " without an error or dead letter topic: refused records are gone"
		}
		r.Tables = append(r.Tables, t)
		r.OK = r.OK && t.OK
		cluster := e.clusters[len(cfg.Sources)+i]
		err = cluster.Ping(ctx)
		if err == nil {
			err = sinkTopics(ctx, cluster, s)
		}
		if err != nil {
			r.OK, r.Kafka = false, KafkaReport{Problem: err.Error()}
		}
	}
	return r, nil
}

func (t *TableReport) failed(err error) {
	t.OK, t.Problem = false, err.Error()
	if e, ok := errors.AsType[*failure.Error](err); ok {
		t.Hint = e.Hint
	}
}

func checkTable(ctx context.Context, pc poller.Config) TableReport {
	r := TableReport{Alias: pc.Alias, Table: pc.List.Table, RowsEstimate: -1, TimeZoneOK: true}
	pc.Count = true
	m := poller.Probe(ctx, pc)
	if m.Err == nil {
		r.OK, r.RowsEstimate = true, m.Total
		r.InvalidTermsIgnored = ignoresTerms(ctx, pc)
		if r.InvalidTermsIgnored {
			r.Hint = "the instance drops terms it cannot parse: a misspelt query reads too many rows; set glide.invalid_query.returns_no_rows"
		}
		return r
	}
	r.failed(m.Err)
	if e, ok := errors.AsType[*failure.Error](m.Err); ok {
		r.TimeZoneOK = e.Class != failure.Misconfigured || m.Date.IsZero()
	}
	return r
}

// ignoresTerms asks for rows by a field that cannot exist.
func ignoresTerms(ctx context.Context, pc poller.Config) bool {
	l := pc.List
	l.Query, l.Limit = cursor.Query{}.And("snowmelt_no_such_field=1").String(), 1
	page, err := pc.Instance.List(ctx, l, pc.Fields)
	if err != nil {
		return false
	}
	defer page.Release()
	return len(page.Rows) > 0
}

func checkTopics(ctx context.Context, cluster *kafka.Cluster, s config.Source) error {
	if err := cluster.Ping(ctx); err != nil {
		return err
	}
	for _, t := range s.Tables {
		topic, err := cluster.EnsureTopic(ctx, kafka.TopicSpec{Name: t.Topic}, false)
		if failure.ClassOf(err) == failure.TopicRefused && s.CreateTopics {
			continue // a run creates it
		}
		if err == nil {
			err = kafka.CheckSourceTopic(topic, s.ExactlyOnce, t.Start.Time(), time.Now(), s.AllowExpiring)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
