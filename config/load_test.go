package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// notations are one configuration, written in every way that is read.
var notations = map[string]string{
	"example.yaml": `
kafka:
  bootstrap.servers: broker:9092
  sasl.mechanism: PLAIN
snow.url: https://acme.service-now.com
sources:
  up.dates:
    snow.tables: [incident, task]
    snow.auth.username: integration
    snow.auth.password: hunter2
    snow.source.batch.size: 500
    snow.table.incident: {name: incident, topic: a.b.c, start.timestamp: 2020-02-03 04:05:06}
    snow.table.task: {name: task, topic: tasks, query: "active=true", query.domain: false}
    topic.creation.default.min.insync.replicas: 2
`,
	"nested.yml": `
kafka: {bootstrap: {servers: ["broker:9092"]}, sasl: {mechanism: PLAIN}}
snow: {url: "https://acme.service-now.com"}
sources:
  up.dates:
    snow:
      tables: incident,task
      auth: {username: integration, password: hunter2}
      source: {batch: {size: 500}}
      table:
        incident: {name: incident, topic: a.b.c, start: {timestamp: "2020-02-03 04:05:06"}}
        task: {name: task, topic: tasks, query: "active=true", query.domain: false}
    topic: {creation: {default: {min: {insync: {replicas: 2}}}}}
`,
	"dotted.toml": `
"kafka.bootstrap.servers" = "broker:9092"
kafka.sasl.mechanism = "PLAIN"
"snow.url" = "https://acme.service-now.com"
[sources."up.dates"]
"snow.tables" = ["incident", "task"]
snow.auth.username = "integration"
snow.auth.password = "hunter2"
"snow.source.batch.size" = 500
"topic.creation.default.min.insync.replicas" = 2
[sources."up.dates".snow.table.incident]
name = "incident"
topic = "a.b.c"
start.timestamp = 2020-02-03T04:05:06
[sources."up.dates".snow.table.task]
name = "task"
topic = "tasks"
query = "active=true"
"query.domain" = false
`,
	"nested.json": `{"kafka": {"bootstrap.servers": ["broker:9092"], "sasl": {"mechanism": "PLAIN"}},
"snow.url": "https://acme.service-now.com",
"sources": {"up.dates": {"snow.tables": "incident, task", "snow.auth": {"username": "integration", "password": "hunter2"},
  "snow.source.batch.size": 500, "topic.creation.default": {"min.insync.replicas": 2},
  "snow.table": {"incident": {"name": "incident", "topic": "a.b.c", "start.timestamp": "2020-02-03 04:05:06"},
                 "task": {"name": "task", "topic": "tasks", "query": "active=true", "query.domain": "false"}}}}}`,
	"connect.json": `{"name": "up.dates", "config": {"connector.class": "sh.oso.servicenow.source.ServiceNowSourceConnector",
  "tasks.max": "3", "errors.log.enable": "true", "value.converter": "org.apache.kafka.connect.json.JsonConverter",
  "value.converter.schemas.enable": "false", "key.converter": "org.apache.kafka.connect.storage.StringConverter",
  "snow.url": "https://acme.service-now.com", "snow.tables": "incident,task", "snow.auth.username": "integration",
  "snow.auth.password": "hunter2", "snow.source.batch.size": "500",
  "snow.table.incident.name": "incident", "snow.table.incident.topic": "a.b.c", "snow.table.incident.start.timestamp": "2020-02-03 04:05:06",
  "snow.table.task.name": "task", "snow.table.task.topic": "tasks", "snow.table.task.query": "active=true",
  "snow.table.task.query.domain": "false", "producer.override.sasl.mechanism": "PLAIN",
  "topic.creation.default.min.insync.replicas": "2"}}`,
	"connect.properties": `
name=up.dates
connector.class=sh.oso.servicenow.source.ServiceNowSourceConnector
tasks.max = 3
snow.url : https\://acme.service-now.com
snow.tables incident,\
            task
snow.auth.username=integration
snow.auth.password=hunter2
snow.source.batch.size=500
snow.table.incident.name=incident
snow.table.incident.topic=a.b.c
snow.table.incident.start.timestamp=2020-02-03 04:05:06
snow.table.task.name=task
snow.table.task.topic=tasks
snow.table.task.query=active\=tr\u0075e
snow.table.task.query.domain=false
producer.override.sasl.mechanism=PLAIN
topic.creation.default.min.insync.replicas=2
`,
}

// TestNotations: every notation means the same.
func TestNotations(t *testing.T) {
	want := load(t, Input{Files: []string{file(t, "example.yaml", notations["example.yaml"])}})
	src := want.Sources[0]
	if src.Name != "up.dates" || len(src.Tables) != 2 || src.Tables[0].Topic != "a.b.c" || src.Tables[0].BatchSize != 500 ||
		src.Tables[0].Start.String() != "2020-02-03 04:05:06" || src.Tables[1].Query != "active=true" || src.Tables[1].QueryDomain ||
		src.Kafka["sasl.mechanism"] != "PLAIN" || src.TopicSettings["min.insync.replicas"] != "2" || src.Instance.Password != "hunter2" {
		t.Fatalf("%+v", src)
	}
	for name, text := range notations {
		in := Input{Files: []string{file(t, name, text)}}
		if strings.HasPrefix(name, "connect") {
			in.Flags = map[string]string{"kafka.bootstrap.servers": "broker:9092"}
		}
		got := load(t, in)
		if noted := len(got.Notes) > 0; noted != strings.HasPrefix(name, "connect") {
			t.Errorf("%s: notes %q", name, got.Notes)
		}
		got.Notes = nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, want)
		}
	}
}

// TestFlat: a name ends at the next dot, so flat notation reaches names without one.
func TestFlat(t *testing.T) {
	got := load(t, with())
	if len(got.Sources) != 1 || got.Sources[0].Name != "itsm" || got.Sources[0].Tables[0].Topic != "servicenow.incident" {
		t.Errorf("%+v", got)
	}
}

// TestTwice: a key stands once in a file, in whatever notation.
func TestTwice(t *testing.T) {
	for name, text := range map[string]string{
		"a.yaml":       "snow.url: https://a.example\nsnow: {url: https://b.example}",
		"b.yaml":       "snow.url: https://a.example\nsnow.url: https://b.example",
		"c.yaml":       "sources: {a: {snow.tables: [x]}}\nsources.a.snow.tables: [y]",
		"d.toml":       "\"snow.url\" = 'https://a.example'\n[snow]\nurl = 'https://b.example'",
		"e.json":       `{"snow.url": "https://a.example", "snow.url": "https://b.example"}`,
		"f.json":       `{"snow.url": "https://a.example", "snow": {"url": "https://b.example"}}`,
		"g.properties": "snow.url=https://a.example\nsnow.url=https://b.example",
		"h.json":       `{"name": "x", "connector.class": "` + sourceClass + `", "producer.override.acks": "all", "kafka.acks": "all"}`,
	} {
		in := Input{Files: []string{file(t, name, text)}}
		found := false
		for _, p := range problems(t, in) {
			found = found || strings.Contains(p.Problem, "given twice") || strings.Contains(p.Problem, "already defined") || strings.Contains(p.Problem, "which is given, too")
		}
		if !found {
			t.Errorf("%s: %v", name, problems(t, in))
		}
	}
}

// TestPrecedence: defaults, files in order, environment, flags; lists are replaced whole.
func TestPrecedence(t *testing.T) {
	const key, variable = "snow.source.batch.size", "SNOWMELT_SNOW_SOURCE_BATCH_SIZE"
	one, two := file(t, "1.yaml", key+": 1\nsources.itsm.snow.tables: [incident, gone]"), file(t, "2.json", `{"`+key+`": 2, "sources": {"itsm": {"snow.tables": ["incident"]}}}`)
	for _, c := range []struct {
		files, env []string
		flag       string
		want       int
	}{
		{nil, nil, "", 5000},
		{[]string{one, two}, nil, "", 2},
		{[]string{one, two}, []string{variable + "=3"}, "", 3},
		{[]string{one, two}, []string{variable + "=3"}, "4", 4},
	} {
		in := with()
		in.Files, in.Environ = c.files, c.env
		if c.files != nil {
			delete(in.Flags, "sources.itsm.snow.tables")
		}
		if c.flag != "" {
			in.Flags[key] = c.flag
		}
		got := load(t, in)
		if n := got.Sources[0].Tables[0].BatchSize; n != c.want || len(got.Sources[0].Tables) != 1 {
			t.Errorf("%+v: %d", c, n)
		}
	}
	own := load(t, with(key+"=7", "sources.itsm."+key+"=8", "sources.itsm.snow.table.incident.batch.size=9"))
	if n := own.Sources[0].Tables[0].BatchSize; n != 9 {
		t.Errorf("the table's own size is %d", n)
	}
	own = load(t, with(key+"=7", "sources.itsm."+key+"=8"))
	if n := own.Sources[0].Tables[0].BatchSize; n != 8 {
		t.Errorf("the pipeline's own size is %d", n)
	}
}

// TestEnvironment: every shared key has a variable, and no variable is passed over.
func TestEnvironment(t *testing.T) {
	seen := map[string]string{}
	for _, k := range Keys() {
		if strings.ContainsAny(k.Name, "<*") {
			continue
		}
		if other := seen[variable(k.Name)]; other != "" {
			t.Errorf("%s and %s are both %s", k.Name, other, variable(k.Name))
		}
		seen[variable(k.Name)] = k.Name
	}
	in := with("kafka.bootstrap.servers=")
	in.Environ = []string{"PATH=/bin", "SNOWMELT_KAFKA_BOOTSTRAP_SERVERS=env:9092", "SNOWMELT_LOG_LEVEL=debug"}
	if got := load(t, in); got.Sources[0].Kafka["bootstrap.servers"] != "env:9092" || got.LogLevel != "debug" {
		t.Errorf("%+v", got)
	}
	in.Environ = append(in.Environ, "SNOWMELT_SNOW_AUTH_PASWORD=hunter3")
	p := problems(t, in)["SNOWMELT_SNOW_AUTH_PASWORD"]
	if p.Suggestion != "SNOWMELT_SNOW_AUTH_PASSWORD" || strings.Contains(p.String(), "hunter3") {
		t.Errorf("%+v", p)
	}
}

// TestSecrets: references are resolved, and what they stand for is shown nowhere.
func TestSecrets(t *testing.T) {
	props := file(t, "secrets.properties", "pass\\ word = from a file\nempty=\n")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "password"), []byte("from a folder\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"PW=old", "PW=from the environment"}
	for value, want := range map[string]string{
		"${env:PW}":                                                 "from the environment",
		"${file:" + props + ":pass word}":                           "from a file",
		"${dir:" + dir + ":password}":                               "from a folder",
		"a${env:PW}b${env:PW}c":                                     "afrom the environmentbfrom the environmentc",
		"$env ${other:x} {env:PW} $ {env:PW}":                       "$env ${other:x} {env:PW} $ {env:PW}",
		"${dir:" + dir + ":../" + filepath.Base(dir) + "/password}": "from a folder",
	} {
		in := with("snow.auth.password=" + value)
		in.Environ = env
		if got := load(t, in).Sources[0].Instance.Password; got != want {
			t.Errorf("%s: %q, want %q", value, got, want)
		}
		settings, _ := Effective(in)
		for _, s := range settings {
			if strings.Contains(s.Shown(), "from") || strings.Contains(s.Shown(), "a$") {
				t.Errorf("%s is shown as %q", value, s.Shown())
			}
		}
	}
	for _, value := range []string{"${env:NONE}", "${file:" + props + ":none}", "${file:/none/at/all:x}", "${dir:" + dir + ":none}", "${file:x}"} {
		in := with("snow.auth.password=" + value)
		if p := problems(t, in)["snow.auth.password"]; !strings.Contains(p.Problem, "resolving") {
			t.Errorf("%s: %+v", value, p)
		}
	}
	in := with("snow.source.batch.size=${env:PW}")
	in.Environ = env
	if p := problems(t, in)["snow.source.batch.size"]; p.Problem == "" || strings.Contains(p.String(), "from the environment") {
		t.Errorf("%+v", p)
	}
}

// TestShown: what may be a secret is never printed, misspelt or not.
func TestShown(t *testing.T) {
	in := with("kafka.sasl.password=hunter3", "kafka.sasl.jaas.config=hunter4", "kafka.ssl.keystore.key=hunter5", "kafka.client.id=visible")
	settings, wrong := Effective(in)
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	visible := false
	for _, s := range settings {
		if strings.Contains(s.Shown(), "hunter") {
			t.Errorf("%s is shown as %s", s.Name, s.Shown())
		}
		visible = visible || s.Shown() == "visible"
	}
	if !visible {
		t.Error("what is no secret is not shown")
	}
	for _, pair := range []string{
		"snow.auth.pasword=hunter3", "snow.auth.passwort=hunter3", "admin.token=hunter3", "sources.itsm.admin.token=hunter3",
		"snow.oauth.client.secret=hunter3", "targets.x.kafka.sasl.password=hunter3", "snow.sink.reporter.producer.sasl.jaas.config=hunter3",
		"sinks.x.snow.auth.password=${env:NONE}hunter3",
	} {
		_, err := Load(with(pair))
		if err == nil || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%s: %v", pair, err)
		}
	}
}

// TestTimes: durations of any length stay positive.
func TestTimes(t *testing.T) {
	got := load(t, with("snow.retry.max.elapsed.ms=4000000000000000000", "engine.shutdown.timeout.ms=1500"))
	if got.Sources[0].Instance.Retry.MaxElapsed < 100*365*24*time.Hour || got.ShutdownTimeout != 1500*time.Millisecond {
		t.Errorf("%+v", got)
	}
}
