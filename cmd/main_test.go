package cmd

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	for _, pair := range os.Environ() { // they are settings of the commands under test
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "SNOWMELT_") {
			_ = os.Unsetenv(name)
		}
	}
	goleak.VerifyTestMain(m)
}

// execute runs a command line.
func execute(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = Execute(args, &out, &err)
	return code, out.String(), err.String()
}

// file writes a configuration file and returns its path.
func file(t *testing.T, name, text string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// good is a complete configuration with a secret.
const good = `
kafka: {bootstrap.servers: "127.0.0.1:1", sasl.mechanism: PLAIN, security.protocol: SASL_PLAINTEXT, sasl.username: u, sasl.password: hunter2}
snow.url: http://127.0.0.1:1
snow.auth: {username: integration, password: hunter3}
sources:
  itsm:
    snow.tables: [incident]
    snow.table.incident: {name: incident, topic: servicenow.incident}
`

// bad has four problems.
const bad = `
kafka.bootstrap.servers: broker
snow.url: https://acme.service-now.com
snow.auth: {username: integration, password: hunter3}
sources:
  itsm:
    snow.tables: [incident]
    snow.table.incident: {nmae: incident, topic: servicenow.incident}
    snow.source.batch.size: 0
`
