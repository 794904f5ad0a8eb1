package cmd

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestUsage: what was typed wrongly ends with 2 and says what; help is a success.
func TestUsage(t *testing.T) {
	f := file(t, "good.yaml", good)
	for _, args := range [][]string{
		{"bogus"},
		{"--bogus"},
		{"run", "--bogus"},
		{"run"},
		{"run", "stray", "-c", f},
		{"check"},
		{"check", "-c"},
		{"check", "-c", f, "--output", "xml"},
		{"check", "-c", f, "--set", "novalue"},
		{"config", "bogus"},
		{"config", "keys", "--output", "xml"},
		{"config", "show"},
		{"offsets", "bogus"},
		{"offsets", "list"},
		{"offsets", "list", "stray"},
		{"demo", "--rows", "0"},
		{"demo", "--for", "x"},
		{"demo", "--output", "xml"},
		{"fake", "--rows", "incident"},
		{"fake", "--rows", "incident=-1"},
		{"fake", "--user", "demo"},
		{"fake", "--dictionary", "/none/at/all"},
		{"fake", "--events", "/none/at/all"},
		{"docs"},
		{"version", "stray"},
		{"version", "--output", "xml"},
	} {
		code, stdout, stderr := execute(args...)
		if code != exitUsage || stdout != "" || !strings.HasPrefix(stderr, "snowmelt: ") {
			t.Errorf("%v: exit code %d, %q, %q", args, code, stdout, stderr)
		}
	}
	for _, args := range [][]string{{}, {"--help"}, {"help"}, {"run", "--help"}, {"config"}, {"offsets"}, {"help", "demo"}} {
		code, stdout, stderr := execute(args...)
		if code != exitOK || !strings.Contains(stdout, "Usage:") || stderr != "" {
			t.Errorf("%v: exit code %d, %q, %q", args, code, stdout, stderr)
		}
	}
}

// TestWrongConfiguration: every command that needs one lists every problem.
func TestWrongConfiguration(t *testing.T) {
	f := file(t, "bad.yaml", bad)
	wrong := []string{
		"kafka.bootstrap.servers", "sources.itsm.snow.table.incident.nmae", "did you mean snow.table.incident.name?",
		"sources.itsm.snow.table.incident.name: required", "sources.itsm.snow.source.batch.size", "1 to 50000",
	}
	for _, c := range []struct {
		code int
		args []string
		says []string
	}{
		{exitUsage, []string{"run", "-c", f}, wrong},
		{exitUsage, []string{"offsets", "list", "-c", f}, wrong},
		{exitUsage, []string{"config", "show", "-c", f}, []string{"did you mean", "1 to 50000"}},
		{exitFailed, []string{"check", "-c", f}, append([]string{"problems: 4"}, wrong...)},
		{exitFailed, []string{"check", "--offline", "-c", f, "--output", "json"}, []string{`"ok": false`, "50000", "snow.table.incident.name"}},
		{exitUsage, []string{"run", "-c", file(t, "good.yaml", good), "--set", "kafka.nonsense=1"}, []string{"kafka.nonsense"}},
		{exitUsage, []string{"run", "-c", file(t, "good.yaml", good), "--set", "snow.url=http://acme.example"}, []string{"snow.http.allow.plaintext"}},
		{exitFailed, []string{"check", "--offline", "-c", file(t, "good.yaml", good), "--set", "kafka.nonsense=1"}, []string{"kafka.nonsense: no such setting"}},
		{exitFailed, []string{"run", "-c", file(t, "good.yaml", good), "--set", "admin.address=256.0.0.1:1"}, []string{"admin.address"}},
	} {
		code, stdout, stderr := execute(c.args...)
		if code != c.code || strings.Contains(stdout+stderr, "hunter") {
			t.Errorf("%v: exit code %d, %q, %q", c.args, code, stdout, stderr)
		}
		for _, s := range c.says {
			if !strings.Contains(stdout+stderr, s) {
				t.Errorf("%v does not say %q:\n%s%s", c.args, s, stdout, stderr)
			}
		}
	}
}

// members returns the names of an object's members.
func members(m map[string]any) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	return out
}

func hasAll(t *testing.T, what string, m map[string]any, names ...string) {
	t.Helper()
	for _, n := range names {
		if _, ok := m[n]; !ok {
			t.Errorf("%s has no %q: %v", what, n, members(m))
		}
	}
}

// TestCheckJSON: the report has the shape that others rely on.
func TestCheckJSON(t *testing.T) {
	check := func(code int, args ...string) map[string]any {
		t.Helper()
		got, stdout, stderr := execute(append([]string{"check", "--output", "json"}, args...)...)
		var report map[string]any
		if err := json.Unmarshal([]byte(stdout), &report); err != nil || got != code {
			t.Fatalf("%v: exit code %d, %v, %q", args, got, err, stderr)
		}
		hasAll(t, "the report", report, "ok", "errors", "tables", "kafka")
		hasAll(t, "kafka", report["kafka"].(map[string]any), "ok", "problem")
		return report
	}
	r := check(exitOK, "--offline", "-c", file(t, "good.yaml", good))
	if r["ok"] != true || !reflect.DeepEqual(r["errors"], []any{}) || !reflect.DeepEqual(r["tables"], []any{}) {
		t.Errorf("%v", r)
	}
	r = check(exitFailed, "--offline", "-c", file(t, "bad.yaml", bad))
	wrong := r["errors"].([]any)
	if r["ok"] != false || len(wrong) != 4 {
		t.Errorf("%v", r)
	}
	for _, e := range wrong {
		hasAll(t, "an error", e.(map[string]any), "key", "value", "problem", "allowed", "suggestion")
	}
	// Nobody listens: instance and brokers are unreachable, and the report says so.
	r = check(exitFailed, "-c", file(t, "good.yaml", good))
	tables := r["tables"].([]any)
	if r["ok"] != false || len(tables) != 1 || r["kafka"].(map[string]any)["problem"] == "" {
		t.Fatalf("%v", r)
	}
	table := tables[0].(map[string]any)
	hasAll(t, "a table", table, "alias", "table", "ok", "problem", "hint", "rows_estimate", "time_zone_ok", "invalid_terms_ignored")
	if table["ok"] != false || table["problem"] == "" || table["alias"] != "incident" {
		t.Errorf("%v", table)
	}
}

// TestKeys: every key of the specification exists, with its side, type and default.
func TestKeys(t *testing.T) {
	code, stdout, stderr := execute("config", "keys", "--output", "json")
	var keys []map[string]any
	if err := json.Unmarshal([]byte(stdout), &keys); err != nil || code != exitOK {
		t.Fatalf("exit code %d, %v, %q", code, err, stderr)
	}
	have := map[string]map[string]any{}
	for _, k := range keys {
		hasAll(t, "a key", k, "key", "side", "type", "default", "valid", "secret", "doc", "since")
		name := k["key"].(string)
		if have[name] != nil {
			t.Errorf("%s is there twice", name)
		}
		have[name] = k
		if k["type"] == "secret" && k["secret"] != true {
			t.Errorf("%s: %v", name, k)
		}
	}
	if _, text, _ := execute("config", "keys"); strings.Count(text, "\n") != len(keys)+1 {
		t.Errorf("%d lines of text for %d keys", strings.Count(text, "\n"), len(keys))
	}
	raw, err := os.ReadFile(filepath.Join("..", "..", "shared", "spec", "keys.tsv"))
	if err != nil {
		t.Skipf("the specification is not beside the repository: %v", err)
	}
	rows := 0
	for line := range strings.Lines(string(raw)) {
		col := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if col[0] == "key" || len(col) < 6 {
			continue
		}
		rows++
		k := have[col[0]]
		if k == nil {
			t.Errorf("%s is missing", col[0])
			continue
		}
		for i, field := range []string{"side", "type", "default"} {
			if k[field] != col[i+1] {
				t.Errorf("%s: %s is %v, the specification says %q", col[0], field, k[field], col[i+1])
			}
		}
	}
	if rows < 100 {
		t.Errorf("only %d keys in the specification", rows)
	}
}

// TestShow: the effective settings are printed, secrets are not.
func TestShow(t *testing.T) {
	f := file(t, "good.yaml", good)
	t.Setenv("SOME_PASSWORD", "hunter4")
	code, stdout, _ := execute("config", "show", "-c", f, "--set", "snow.source.batch.size=7", "--set", "snow.auth.password=${env:SOME_PASSWORD}")
	for _, want := range []string{
		"snow.auth.password = ${env:SOME_PASSWORD}\n", "kafka.sasl.password = ***\n", "snow.source.batch.size = 7\n",
		"sources.itsm.snow.table.incident.topic = servicenow.incident\n",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	if code != exitOK || strings.Contains(stdout, "hunter") {
		t.Errorf("exit code %d\n%s", code, stdout)
	}
	code, stdout, _ = execute("config", "show", "-c", f, "--output", "json")
	var lines []map[string]string
	if err := json.Unmarshal([]byte(stdout), &lines); err != nil || code != exitOK || strings.Contains(stdout, "hunter") || len(lines) < 8 {
		t.Errorf("exit code %d, %v\n%s", code, err, stdout)
	}
}

// TestDocsFresh: the generated pages are those that the code prints, and a stale one is noticed.
func TestDocsFresh(t *testing.T) {
	if code, _, stderr := execute("docs", "--check", filepath.Join("..", "docs")); code != exitOK {
		t.Error(stderr)
	}
	dir := t.TempDir()
	if code, _, stderr := execute("docs", "--check", dir); code != exitFailed || !strings.Contains(stderr, "stale") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if code, stdout, stderr := execute("docs", dir); code != exitOK || strings.Count(stdout, "\n") != len(printed) {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	if code, _, stderr := execute("docs", "--check", dir); code != exitOK {
		t.Errorf("just printed, and %q", stderr)
	}
}

func TestVersion(t *testing.T) {
	code, stdout, _ := execute("version", "--output", "json")
	var v map[string]any
	if err := json.Unmarshal([]byte(stdout), &v); err != nil || code != exitOK {
		t.Fatalf("exit code %d, %v", code, err)
	}
	hasAll(t, "the version", v, "version", "commit", "go", "dependencies")
	if _, text, _ := execute("version"); !strings.HasPrefix(text, "snowmelt ") {
		t.Errorf("%q", text)
	}
}

// TestDemo runs a small one to its end.
func TestDemo(t *testing.T) {
	code, stdout, stderr := execute("demo", "--rows", "300", "--output", "json", "--admin", "127.0.0.1:0")
	var r map[string]any
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != exitOK {
		t.Fatalf("exit code %d, %v, %q", code, err, stderr)
	}
	hasAll(t, "the result", r, "source", "sink", "faults_injected", "elapsed_seconds", "verdict")
	source := r["source"].(map[string]any)
	hasAll(t, "source", source, "rows", "records", "distinct_versions", "duplicates", "missing", "stale")
	hasAll(t, "sink", r["sink"].(map[string]any), "records", "written", "failed", "rows_in_instance")
	if r["verdict"] != "PASS" || source["rows"] != 300.0 || source["missing"] != 0.0 || source["duplicates"] != 0.0 {
		t.Errorf("%v", r)
	}
}
