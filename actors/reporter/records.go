package reporter

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"snowmelt/actors/msg"
	"snowmelt/core/failure"
	"snowmelt/core/record"
)

// place is where a reported record came from.
type place struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

// successReport is the value of a success report (failures.md section 4).
type successReport struct {
	Operation string          `json:"operation"`
	Table     string          `json:"table"`
	SysID     string          `json:"sys_id"`
	Status    int             `json:"status"`
	RequestID string          `json:"request_id"`
	Source    place           `json:"source"`
	Body      json.RawMessage `json:"request_body,omitempty"`
	// UnknownFields were left out under snow.sink.unknown.field.behavior=report.
	UnknownFields []string `json:"unknown_fields,omitempty"`
}

// errorReport adds what went wrong.
type errorReport struct {
	successReport
	Classification string `json:"classification"`
	Retries        int    `json:"retries"`
	Excerpt        string `json:"response_excerpt"`
	Exception      string `json:"exception"`
	Message        string `json:"message"`
}

// records returns what a report puts into topics.
func (c *Config) records(rep *msg.Report) []record.Record {
	now := time.Now().UnixMilli()
	base := successReport{
		Operation: string(rep.Write.Operation), Table: rep.Write.Table, SysID: rep.Write.SysID, Status: rep.Result.Status,
		RequestID: rep.Result.RequestID, Source: place{rep.Record.Topic, rep.Record.Partition, rep.Record.Offset}, UnknownFields: rep.Write.Unknown,
	}
	if c.Body && len(rep.Write.Body) > 0 {
		base.Body = rep.Write.Body
	}
	if rep.Err == nil {
		if base.SysID == "" {
			base.SysID = rep.Result.SysID
		}
		if c.SuccessTopic == "" {
			return nil
		}
		return []record.Record{{Topic: c.SuccessTopic, Key: []byte(base.SysID), Value: encoded(base), Timestamp: now}}
	}
	var out []record.Record
	if c.ErrorTopic != "" {
		e := errorReport{successReport: base, Classification: rep.Classification, Retries: rep.Retries, Message: rep.Err.Error()}
		e.Exception = fmt.Sprintf("%T", rep.Err)
		if f, ok := errors.AsType[*failure.Error](rep.Err); ok {
			e.Status, e.RequestID, e.Excerpt = f.Status, f.RequestID, f.Detail
		}
		r := record.Record{Topic: c.ErrorTopic, Value: encoded(e), Timestamp: now}
		if base.SysID != "" {
			r.Key = []byte(base.SysID)
		}
		out = append(out, r)
	}
	if c.DeadLetterTopic != "" && rep.Reply != nil {
		out = append(out, c.deadLetter(rep))
	}
	return out
}

func encoded(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // a body that is no JSON: it was made here, so it cannot be
		panic(fmt.Errorf("encoding a report: %w", err))
	}
	return b
}

// deadLetter returns the record as it came, with Connect's context headers if wanted.
func (c *Config) deadLetter(rep *msg.Report) record.Record {
	in := rep.Record
	r := record.Record{Topic: c.DeadLetterTopic, Key: in.Key, Value: in.Value, Timestamp: in.Timestamp}
	r.Headers = append(r.Headers, in.Headers...)
	if c.ContextHeaders {
		for _, h := range [][2]string{
			{"topic", in.Topic},
			{"partition", strconv.Itoa(int(in.Partition))},
			{"offset", strconv.FormatInt(in.Offset, 10)},
			{"connector.name", c.Pipeline},
			{"task.id", "0"},
			{"stage", "TASK_PUT"},
			{"class.name", "snowmelt.Sink"},
			{"exception.class.name", fmt.Sprintf("%T", rep.Err)},
			{"exception.message", rep.Err.Error()},
			{"exception.stacktrace", rep.Err.Error()},
		} {
			r.Headers = append(r.Headers, record.Header{Key: "__connect.errors." + h[0], Value: []byte(h[1])})
		}
	}
	return r
}

// count tells the observer what became durable.
func (c *Config) count(rep *msg.Report) {
	switch {
	case rep.Err == nil && c.SuccessTopic != "":
		c.Observer.Reports(c.Pipeline, "success", 1)
	case rep.Err != nil:
		if c.ErrorTopic != "" {
			c.Observer.Reports(c.Pipeline, "error", 1)
		}
		if c.DeadLetterTopic != "" && rep.Reply != nil {
			c.Observer.Reports(c.Pipeline, "dead_letter", 1)
		}
	}
}
