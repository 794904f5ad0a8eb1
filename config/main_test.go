package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// file writes a configuration file and returns its path.
func file(t testing.TB, name, text string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// load loads a file that must be valid.
func load(t *testing.T, in Input) Config {
	t.Helper()
	cfg, err := Load(in)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// problems returns what is wrong with a file, by key.
func problems(t *testing.T, in Input) map[string]Problem {
	t.Helper()
	_, err := Load(in)
	if err == nil {
		return nil
	}
	wrong, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("%T: %v", err, err)
	}
	out := map[string]Problem{}
	for _, p := range wrong.Problems {
		out[p.Key] = p
	}
	return out
}

// base is a complete configuration in the shape of flags.
func base() map[string]string {
	return map[string]string{
		"kafka.bootstrap.servers": "broker:9092", "snow.url": "https://acme.service-now.com",
		"snow.auth.username": "integration", "snow.auth.password": "hunter2",
		"sources.itsm.snow.tables":               "incident",
		"sources.itsm.snow.table.incident.name":  "incident",
		"sources.itsm.snow.table.incident.topic": "servicenow.incident",
	}
}

// with returns base with further settings; an empty value removes one.
func with(pairs ...string) Input {
	flags := base()
	for _, pair := range pairs {
		k, v, _ := strings.Cut(pair, "=")
		if v == "" {
			delete(flags, k)
			continue
		}
		flags[k] = v
	}
	return Input{Flags: flags}
}
