package config

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// TestAllAtOnce: every problem is named, with key, value, what is allowed and a suggestion.
func TestAllAtOnce(t *testing.T) {
	text := `
snow.url: ftp://acme
snow.auth.username: u
snow.auth.password: p
snow.htpp.user.agent: x
log.level: loud
sources:
  itsm:
    kafka.bootstrap.servers: [broker]
    snow.tables: [incident, incident]
    snow.table.incident.nmae: incident
    snow.table.incident.topic: "no spaces"
    snow.table.task.name: task
    snow.sink.table: incident
    admin.address: 127.0.0.1:1
source.itsm.snow.tables: [a]
`
	got := problems(t, Input{Files: []string{file(t, "a.yaml", text)}})
	for key, want := range map[string]Problem{
		"snow.url":                               {Value: "ftp://acme", Problem: "not an http(s) URL", Allowed: "an http(s) URL"},
		"snow.htpp.user.agent":                   {Value: "x", Problem: "unknown key", Suggestion: "snow.http.user.agent"},
		"log.level":                              {Value: "loud", Problem: "not one of", Allowed: "debug, info, warn, error"},
		"sources.itsm.kafka.bootstrap.servers":   {Value: "broker", Problem: "does not fit", Allowed: "host:port"},
		"sources.itsm.snow.tables":               {Value: "incident", Problem: "twice"},
		"sources.itsm.snow.table.incident.nmae":  {Value: "incident", Problem: "unknown key", Suggestion: "snow.table.incident.name"},
		"sources.itsm.snow.table.incident.topic": {Value: "no spaces", Problem: "does not fit", Allowed: "a topic name"},
		"sources.itsm.snow.table.incident.name":  {Problem: "required", Allowed: "a-z, 0-9 and _"},
		"sources.itsm.snow.table.task.name":      {Value: "task", Problem: `the alias "task" is not in snow.tables`, Allowed: "incident"},
		"sources.itsm.snow.sink.table":           {Value: "incident", Problem: "a key of sinks", Allowed: "a-z, 0-9 and _"},
		"sources.itsm.admin.address":             {Value: "127.0.0.1:1", Problem: "belongs to the process"},
		"source.itsm.snow.tables":                {Value: "a", Problem: "unknown key", Suggestion: "sources.itsm.snow.tables"},
	} {
		p, ok := got[key]
		if !ok || !strings.Contains(p.Problem, want.Problem) || want.Value != "" && p.Value != want.Value || want.Allowed != "" && p.Allowed != want.Allowed || p.Suggestion != want.Suggestion {
			t.Errorf("%s:\n got %+v\nwant %+v", key, p, want)
		}
		delete(got, key)
	}
	for key, p := range got {
		t.Errorf("not expected: %s: %+v", key, p)
	}
}

// TestBounds walks the key table: what each key allows is accepted, what lies beside it is refused.
func TestBounds(t *testing.T) {
	bounded, enums, addresses, plannedKeys := 0, 0, 0, 0
	for _, k := range Keys() {
		set := func(v string) string {
			t.Helper()
			name := strings.NewReplacer("<alias>", "incident", "<setting>", "x", "<topic>", "x", "*", "client.id").Replace(k.Name)
			where := name
			if k.Side == SourceSide {
				where = "sources.itsm." + name
			}
			return problems(t, with(where+"="+v))[where].Problem
		}
		if !k.Built {
			plannedKeys++
			if p := set("1"); !strings.Contains(p, "not built yet") && k.Side != SinkSide {
				t.Errorf("%s is planned, but setting it says %q", k.Name, p)
			}
			continue
		}
		if k.Doc == "" || k.Since == "" {
			t.Errorf("%s is not documented", k.Name)
		}
		if k.Default != "" && !k.required {
			if p := k.check(k.Default); p != "" {
				t.Errorf("the default of %s: %s", k.Name, p)
			}
		}
		switch k.Type {
		case Int, Long, Float:
			bounded++
			for v, ok := range map[string]bool{
				number(k.min): true, number(k.min - 1): false, number(k.max + 1): k.max >= 1<<62 && k.max+1 == k.max && k.Type != Int, "x": false, "": true,
				"NaN": false, "1e999": false, "Inf": false, "0x": false,
			} {
				if p := set(v); (p == "") != ok && (v != "" || p != "") {
					t.Errorf("%s=%s: %q", k.Name, v, p)
				}
			}
			if k.Type == Int && set("2147483648") == "" {
				t.Errorf("%s takes more than 32 bits", k.Name)
			}
			if k.Type != Float && set(number(k.min)+".5") == "" {
				t.Errorf("%s takes fractions", k.Name)
			}
		case Bool:
			for v, ok := range map[string]bool{"true": true, "false": true, "yes": false, "1": false, "TRUE": false} {
				if p := set(v); (p == "") != ok {
					t.Errorf("%s=%s: %q", k.Name, v, p)
				}
			}
		case Enum:
			enums++
			for _, v := range k.oneOf {
				built := k.builtIn == nil
				for _, b := range k.builtIn {
					built = built || b == v
				}
				if p := set(v); (p == "") != built {
					t.Errorf("%s=%s: %q", k.Name, v, p)
				}
			}
			if set("nonsense") == "" {
				t.Errorf("%s takes anything", k.Name)
			}
		case URL:
		case String:
			if k.pattern != nil && set("not/ok at all!") == "" {
				t.Errorf("%s takes anything", k.Name)
			}
			if !k.address {
				continue
			}
			addresses++
			for v, ok := range map[string]bool{"https://a.example": true, "http://127.0.0.1:80": true, "a.example": false, "ftp://a": false, "https://": false, "https://u:p@a.example": false, "://": false} {
				if p := set(v); (p == "") != ok {
					t.Errorf("%s=%s: %q", k.Name, v, p)
				}
			}
		case Time:
			for v, ok := range map[string]bool{"2020-01-01 00:00:00": true, "2020-01-01": false, "2020-13-01 00:00:00": false, "yesterday": false} {
				if p := set(v); (p == "") != ok {
					t.Errorf("%s=%s: %q", k.Name, v, p)
				}
			}
		case List, Secret, Path, Regex, Any, Structure:
			if k.pattern != nil && set("not/ok at all!") == "" {
				t.Errorf("%s takes anything", k.Name)
			}
		}
	}
	if bounded < 15 || addresses == 0 || enums < 5 || plannedKeys < 40 {
		t.Errorf("only %d numbers, %d enums and %d planned keys were tried", bounded, enums, plannedKeys)
	}
}

// TestRefused are configurations that must not run.
func TestRefused(t *testing.T) {
	const incident = "sources.itsm.snow.table.incident."
	for name, c := range map[string]struct {
		in   Input
		key  string
		says string
	}{
		"no pipeline":            {Input{Flags: map[string]string{"log.level": "info"}}, "sources", "no pipeline"},
		"a source's name":        {with("sinks.itsm.snow.sink.table=incident", "sinks.itsm.topics=t"), "sinks.itsm", "a source has the same name"},
		"a sink without topics":  {with("sinks.x.snow.sink.table=incident"), "sinks.x.topics", "required"},
		"a planned sink key":     {with("sinks.x.snow.sink.batch.api=true", "sinks.x.snow.sink.table=incident", "sinks.x.topics=t"), "sinks.x.snow.sink.batch.api", "not built yet"},
		"a planned sink value":   {with("sinks.x.snow.sink.lane.by=key", "sinks.x.snow.sink.table=incident", "sinks.x.topics=t"), "sinks.x.snow.sink.lane.by", "not built yet"},
		"too many in flight":     {with("sinks.x.snow.sink.max.in.flight=9", "sinks.x.snow.sink.table=incident", "sinks.x.topics=t"), "sinks.x.snow.sink.max.in.flight", "larger than"},
		"no dead letter topic":   {with("sinks.x.errors.tolerance=all", "sinks.x.snow.sink.table=incident", "sinks.x.topics=t"), "sinks.x.errors.deadletterqueue.topic.name", "needed"},
		"reports to the input":   {with("sinks.x.snow.sink.reporter.error.topic=t", "sinks.x.snow.sink.table=incident", "sinks.x.topics=t"), "sinks.x.snow.sink.reporter.error.topic", "input topic"},
		"allow and deny":         {with("sinks.x.snow.sink.field.allowlist=a", "sinks.x.snow.sink.field.denylist=b", "sinks.x.snow.sink.table=incident", "sinks.x.topics=t"), "sinks.x.snow.sink.field.denylist", "not together"},
		"a source key in a sink": {with("sinks.x.snow.tables=a"), "sinks.x.snow.tables", "a key of sources"},
		"a target":               {with("targets.x.kafka.client.id=a"), "targets.x.kafka.client.id", "not built yet"},
		"a planned value":        {with("value.format=avro"), "value.format", "not built yet"},
		"no url":                 {with("snow.url="), "sources.itsm.snow.url", "required"},
		"no password":            {with("snow.auth.password="), "sources.itsm.snow.auth.password", "required"},
		"no tables":              {with("sources.itsm.snow.tables=,"), "sources.itsm.snow.tables", "required"},
		"a name with a slash":    {Input{Files: []string{file(t, "a.yaml", "sources: {a/b: {snow.tables: x}}")}}, "", "slash"},
		"a name with a blank":    {Input{Files: []string{file(t, "a.yaml", "sources: {a b: {snow.tables: x}}")}}, "sources.a b.snow.tables", "name of a pipeline"},
		"no name":                {with("sources..snow.tables=x"), "sources..snow.tables", "name of a pipeline"},
		"a scope as a value":     {Input{Files: []string{file(t, "a.yaml", "sources: 5\nsources.itsm.snow.tables: x")}}, "", "was expected"},
		"a group as a value":     {Input{Files: []string{file(t, "a.yaml", "log.level: [{a: 1}]")}}, "log.level", "not a group of keys"},
		"a planned group":        {Input{Files: []string{file(t, "a.yaml", "response_rules: [{a: 1}]")}}, "response_rules", "not built yet"},
		"a stray table":          {with("snow.table.task.name=task"), "snow.table.task.name", `no pipeline has the alias "task"`},
		"ORDERBY":                {with(incident + "query=active=true^ORDERBYnumber"), incident + "query", "at position 12"},
		"an empty term":          {with(incident + "query=a=1^^b=2"), incident + "query", "at position 4"},
		"OR first":               {with(incident + "query=ORa=1"), incident + "query", "at position 0"},
		"fields without the id":  {with(incident + "fields=number,sys_updated_on"), incident + "fields", "lacks the cursor field sys_id"},
		"a table without end":    {with(incident + "name=sys_audit"), incident + "query", "too large"},
		"one cursor for two": {
			with("sources.itsm.snow.tables=incident,again", "sources.itsm.snow.table.again.name=incident", "sources.itsm.snow.table.again.topic=x"),
			"sources.itsm.snow.table.again.name", "share one cursor",
		},
		"an ending":        {Input{Files: []string{file(t, "a.ini", "x")}}, "", "cannot be read"},
		"no file":          {Input{Files: []string{"/none/at/all.yaml"}}, "/none/at/all.yaml", "no such file"},
		"an empty file":    {Input{Files: []string{file(t, "a.yaml", "")}}, "", "empty"},
		"two documents":    {Input{Files: []string{file(t, "a.yaml", "log.level: info\n---\nlog.level: warn")}}, "", "more than one"},
		"text behind JSON": {Input{Files: []string{file(t, "a.json", `{"log.level": "info"} {}`)}}, "", "behind the end"},
		"JSON that is cut": {Input{Files: []string{file(t, "a.json", `{"log.level": `)}}, "", "reading JSON"},
		"a list as JSON":   {Input{Files: []string{file(t, "a.json", `[]`)}}, "", "no object"},
		"bad properties":   {Input{Files: []string{file(t, "a.properties", `log.level=\u00`)}}, "", "line 1"},
		"connector class":  {Input{Files: []string{file(t, "a.json", `{"name": "x", "connector.class": "io.other"}`)}}, "", "not read here"},
		"connector name":   {Input{Files: []string{file(t, "a.json", `{"connector.class": "`+sourceClass+`"}`)}}, "", "needs a name"},
		"transforms":       {Input{Files: []string{file(t, "a.json", `{"name": "x", "connector.class": "`+sourceClass+`", "transforms": "a"}`)}}, "", "nearest equivalent"},
		"converter":        {Input{Files: []string{file(t, "a.json", `{"name": "x", "connector.class": "`+sourceClass+`", "value.converter": "io.other"}`)}}, "", "no equivalent"},
		"avro":             {Input{Files: []string{file(t, "a.json", `{"name": "x", "connector.class": "`+sourceClass+`", "value.converter": "io.confluent.connect.avro.AvroConverter"}`)}}, "sources.x.value.format", "not built yet"},
	} {
		found := ""
		for key, p := range problems(t, c.in) {
			if (c.key == "" || c.key == key) && strings.Contains(p.Problem, c.says) {
				found = key
			}
		}
		if found == "" {
			t.Errorf("%s: want %q at %s, got %v", name, c.says, c.key, problems(t, c.in))
		}
	}
}

// TestAccepted are configurations beside those that are refused.
func TestAccepted(t *testing.T) {
	const incident = "sources.itsm.snow.table.incident."
	for _, in := range []Input{
		with(),
		with(incident + "query=active=true^ORpriority=1^NQactive=false^EQ"),
		with(incident + "fields=sys_id, sys_updated_on ,number"),
		with(incident+"name=sys_audit", incident+"query=tablename=incident"),
		with("sources.itsm.snow.tables=incident,again", "sources.itsm.snow.table.again.name=incident", "sources.itsm.snow.table.again.topic=x", "sources.itsm.snow.table.again.query=active=true"),
		with("snow.table.incident.batch.size=10"),
		with("sources.second.snow.tables=incident", "sources.second.snow.table.incident.name=incident", "sources.second.snow.table.incident.topic=x"),
	} {
		got := load(t, in)
		if fields := got.Sources[0].Tables[0].Fields; len(fields) > 0 && fields[len(fields)-1] != "sys_mod_count" {
			t.Errorf("sys_mod_count is not added: %v", fields)
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"snow.url", "snow.tables", "log.level", "log.format"}
	for name, want := range map[string]string{"snow.ulr": "snow.url", "log.levle": "log.level", "snow.table": "snow.tables", "nothing.of.the.kind": "", "": ""} {
		if got := nearest(name, names); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// TestMatch: exact names come before patterns, and the longest pattern wins.
func TestMatch(t *testing.T) {
	for name, want := range map[string]string{
		"snow.sink.table":                          "snow.sink.table",
		"snow.sink.table.header":                   "snow.sink.table.header",
		"snow.sink.topic.a.b.table":                "snow.sink.topic.<topic>.table",
		"snow.table.a.query":                       "snow.table.<alias>.query",
		"snow.table.a.query.domain":                "snow.table.<alias>.query.domain",
		"snow.table.a.typed.fields":                "snow.table.<alias>.typed.fields",
		"topic.creation.default.partitions":        "topic.creation.default.partitions",
		"topic.creation.default.max.message.bytes": "topic.creation.default.<setting>",
		"kafka.bootstrap.servers":                  "kafka.bootstrap.servers",
		"kafka.anything":                           "kafka.*",
		"kafka.":                                   "",
		"snow.table..name":                         "",
	} {
		k, _, _ := match(Keys(), name)
		if k.Name != want {
			t.Errorf("%s is %q, want %q", name, k.Name, want)
		}
	}
}

// TestDocs: the reference has a row for every key.
func TestDocs(t *testing.T) {
	var b bytes.Buffer
	if err := WriteDocs(&b); err != nil {
		t.Fatal(err)
	}
	for _, k := range Keys() {
		if !strings.Contains(b.String(), fmt.Sprintf("\n| `%s` |", k.Name)) {
			t.Errorf("%s has no row", k.Name)
		}
	}
	if rows := strings.Count(b.String(), "\n| `"); rows != len(Keys()) {
		t.Errorf("%s rows for %d keys", strconv.Itoa(rows), len(Keys()))
	}
}

// TestURLsHideTheirUser: a password that somebody put into a URL is not shown back.
func TestURLsHideTheirUser(t *testing.T) {
	for _, value := range []string{"http://u:hunter2@host/x", "ftp://hunter2@host", "https://u:hun/ter2:hunter2@h"} {
		_, problems := Effective(Input{Flags: map[string]string{"snow.url": value, "snow.http.proxy.url": value}})
		if len(problems) != 2 {
			t.Errorf("%d problems with %q", len(problems), value)
		}
		for _, p := range problems {
			if strings.Contains(p.String(), "hunter2@") {
				t.Errorf("%s", p)
			}
		}
	}
}
