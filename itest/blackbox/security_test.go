package blackbox

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"snowmelt/itest/fakesnow"
	"snowmelt/itest/kafka"
)

// authority signs certificates for localhost.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  string
	n    int64
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t}
	a.key = a.newKey()
	template := a.template("tests")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage |= x509.KeyUsageCertSign
	a.cert = template
	a.pem = a.sign(template, a.key)
	return a
}

func (a *authority) newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

func (a *authority) template(name string) *x509.Certificate {
	a.n++
	return &x509.Certificate{
		SerialNumber: big.NewInt(a.n), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
}

func (a *authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) string {
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// file returns a PEM file, key and certificate chain, of a name.
func (a *authority) file(name string) string {
	key := a.newKey()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.write(name, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))+a.sign(a.template(name), key)+a.pem)
}

func (a *authority) write(name, text string) string {
	file := filepath.Join(a.t.ArtifactDir(), name+".pem")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return file
}

// newSecured is a world whose broker has listeners SASL, SASLTLS, TLS and MTLS and asks
// its authorizer; the tests' own client is a superuser of another listener.
func newSecured(t *testing.T) (*world, *authority) {
	t.Helper()
	if *kafkaFlag != "real" {
		t.Skip("run with -kafka=real")
	}
	a := newAuthority(t)
	broker, trust := a.file("broker"), a.write("trust", a.pem)
	s := map[string]string{
		"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users": "User:ANONYMOUS",
		"sasl.enabled.mechanisms":            "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
		"listener.name.mtls.ssl.client.auth": "required",
	}
	for _, l := range []string{"tls", "mtls", "sasltls"} {
		s["listener.name."+l+".ssl.keystore.type"], s["listener.name."+l+".ssl.keystore.location"] = "PEM", broker
		s["listener.name."+l+".ssl.truststore.type"], s["listener.name."+l+".ssl.truststore.location"] = "PEM", trust
	}
	for _, l := range []string{"sasl", "sasltls"} {
		s["listener.name."+l+".plain.sasl.jaas.config"] = `org.apache.kafka.common.security.plain.PlainLoginModule required user_snow="melt";`
		for _, m := range []string{"256", "512"} {
			s["listener.name."+l+".scram-sha-"+m+".sasl.jaas.config"] = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
		}
	}
	w := newApache(t, kafka.Options{
		Settings: s, Scram: []string{"SCRAM-SHA-256=[name=snow,password=melt]", "SCRAM-SHA-512=[name=snow,password=melt]"},
		Listeners: map[string]string{"SASL": "SASL_PLAINTEXT", "SASLTLS": "SASL_SSL", "TLS": "SSL", "MTLS": "SSL"},
	})
	return w, a
}

// right is an ACL that a pipeline needs.
type right struct {
	resource kmsg.ACLResourceType
	name     string
	prefixed bool
	op       kmsg.ACLOperation
}

func (r right) String() string { return fmt.Sprint(r.op, " on ", r.resource, " ", r.name) }

func (w *world) grant(principal string, rights ...right) {
	w.t.Helper()
	req := kmsg.NewPtrCreateACLsRequest()
	for _, r := range rights {
		c := kmsg.NewCreateACLsRequestCreation()
		c.ResourceType, c.ResourceName, c.Operation = r.resource, r.name, r.op
		c.ResourcePatternType = kmsg.ACLResourcePatternTypeLiteral
		if r.prefixed {
			c.ResourcePatternType = kmsg.ACLResourcePatternTypePrefixed
		}
		c.Principal, c.Host, c.PermissionType = principal, "*", kmsg.ACLPermissionTypeAllow
		req.Creations = append(req.Creations, c)
	}
	resp, err := req.RequestWith(w.ctx(), w.client)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range resp.Results {
		if r.ErrorCode != 0 {
			w.t.Fatalf("granting: %d %v", r.ErrorCode, r.ErrorMessage)
		}
	}
	w.aclsAre(principal, func(n int) bool { return n >= len(rights) })
}

func (w *world) revokeAll(principal string) {
	w.t.Helper()
	if _, err := w.admin.DeleteACLs(w.ctx(), everyACL(principal)); err != nil {
		w.t.Fatal(err)
	}
	w.aclsAre(principal, func(n int) bool { return n == 0 })
}

// aclsAre waits until the broker's authorizer has followed the controller.
func (w *world) aclsAre(principal string, enough func(int) bool) {
	w.t.Helper()
	w.until("the broker knows the ACLs", func() (bool, error) {
		all, err := w.admin.DescribeACLs(w.ctx(), everyACL(principal))
		n := 0
		for _, r := range all {
			n += len(r.Described)
		}
		return enough(n), err
	})
}

func everyACL(principal string) *kadm.ACLBuilder {
	return kadm.NewACLs().AnyResource().Allow(principal).AllowHosts().Operations().ResourcePatternType(kadm.ACLPatternAny)
}

func sourceRights(table string) []right {
	return []right{
		{kmsg.ACLResourceTypeTopic, topicOf(table), false, kmsg.ACLOperationWrite},
		{kmsg.ACLResourceTypeTopic, topicOf(table), false, kmsg.ACLOperationRead},
		{kmsg.ACLResourceTypeTopic, topicOf(table), false, kmsg.ACLOperationDescribeConfigs},
		{kmsg.ACLResourceTypeTopic, topicOf(table), false, kmsg.ACLOperationCreate},
		{kmsg.ACLResourceTypeTopic, "snowmelt-offsets", false, kmsg.ACLOperationWrite},
		{kmsg.ACLResourceTypeTopic, "snowmelt-offsets", false, kmsg.ACLOperationRead},
		{kmsg.ACLResourceTypeTopic, "snowmelt-offsets", false, kmsg.ACLOperationDescribeConfigs},
		{kmsg.ACLResourceTypeTopic, "snowmelt-offsets", false, kmsg.ACLOperationCreate},
		{kmsg.ACLResourceTypeTransactionalId, "snowmelt-", true, kmsg.ACLOperationWrite},
	}
}

// TestSecurity: every way to log in, each with the least rights.
func TestSecurity(t *testing.T) {
	w, a := newSecured(t)
	n := w.real.Nodes[0]
	trust := filepath.Join(t.ArtifactDir(), "trust.pem")
	client := a.file("snow")
	sasl := func(listener, protocol, mechanism string) settings {
		s := settings{
			"kafka.bootstrap.servers": n.Listeners[listener], "kafka.security.protocol": protocol, "kafka.sasl.mechanism": mechanism,
			"kafka.sasl.username": "snow", "kafka.sasl.password": "melt",
		}
		if protocol == "SASL_SSL" {
			s["kafka.ssl.truststore.type"], s["kafka.ssl.truststore.location"] = "PEM", trust
		}
		return s
	}
	tables := []string{"incident", "problem", "change_request", "sc_task", "sys_user", "cmdb_ci"}
	for i, test := range []struct {
		name, principal string
		settings        settings
	}{
		{"PLAIN", "User:snow", sasl("SASL", "SASL_PLAINTEXT", "PLAIN")},
		{"SCRAM-SHA-256", "User:snow", sasl("SASL", "SASL_PLAINTEXT", "SCRAM-SHA-256")},
		{"SCRAM-SHA-512 over TLS", "User:snow", sasl("SASLTLS", "SASL_SSL", "SCRAM-SHA-512")},
		{"TLS", "User:ANONYMOUS", settings{
			"kafka.bootstrap.servers": n.Listeners["TLS"], "kafka.security.protocol": "SSL",
			"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": trust,
		}},
		{"mutual TLS", "User:CN=snow", settings{
			"kafka.bootstrap.servers": n.Listeners["MTLS"], "kafka.security.protocol": "SSL",
			"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": trust,
			"kafka.ssl.keystore.type": "PEM", "kafka.ssl.keystore.location": client,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			table := tables[i]
			w.inst.Generate(table, 300, fakesnow.GenOptions{MinimalFields: true, Seed: int64(i + 1)})
			if test.principal != "User:ANONYMOUS" {
				w.grant(test.principal, sourceRights(table)...)
			}
			config := w.configure(w.source(table).with(test.settings), nil)
			p := w.run(config)
			w.arrived(table)
			p.Kill()
			p = w.run(config) // reads the cursor and rebuilds the filter
			w.until("the table runs", func() (bool, error) {
				s, err := p.table(table)
				return s.State == "RUNNING" && s.Phase == "stream", err
			})
			p.signal(syscall.SIGTERM)
			p.exits(0)
			w.counts(table)
		})
	}
	for name, wrong := range map[string]settings{
		"a wrong password":           sasl("SASL", "SASL_PLAINTEXT", "SCRAM-SHA-512").with(settings{"kafka.sasl.password": "wrong"}),
		"an unknown authority":       sasl("SASLTLS", "SASL_SSL", "PLAIN").with(settings{"kafka.ssl.truststore.location": a.write("other", newAuthority(t).pem)}),
		"no certificate of a client": {"kafka.bootstrap.servers": n.Listeners["MTLS"], "kafka.security.protocol": "SSL", "kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": trust},
	} {
		t.Run(name, func(t *testing.T) {
			p := w.run(w.configure(w.source("incident").with(wrong), settings{"engine.on.failure": "hold"}))
			var s tableStatus
			w.until("the table has failed", func() (bool, error) {
				var err error
				s, err = p.table("incident")
				return s.State == "FAILED" || s.State == "RETRYING", err
			})
			t.Logf("%s: %s", s.State, s.Error)
			if s.State != "FAILED" || strings.Contains(s.Error, "wrong\"") {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestLeastRights: what a source and a sink need is needed, each of it, and a refusal
// names it.
func TestLeastRights(t *testing.T) {
	w, _ := newSecured(t)
	const table, principal = "incident", "User:snow"
	sasl := settings{
		"kafka.bootstrap.servers": w.real.Nodes[0].Listeners["SASL"], "kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN",
		"kafka.sasl.username": "snow", "kafka.sasl.password": "melt",
	}
	w.inst.Generate(table, 300, fakesnow.GenOptions{MinimalFields: true})
	config := w.configure(w.source(table).with(sasl), settings{"engine.on.failure": "hold"})
	all := sourceRights(table)
	tries := 0
	try := func(rights []right) tableStatus {
		t.Helper()
		w.revokeAll(principal)
		w.grant(principal, rights...)
		tries++
		w.inst.Generate(table, 5, fakesnow.GenOptions{
			Start: w.inst.Now(), OneSecond: true, MinimalFields: true, Seed: int64(tries + 1), IDPrefix: fmt.Sprintf("%02x", tries),
		})
		p := w.run(config)
		var s tableStatus
		w.until("the table runs or fails", func() (bool, error) {
			var err error
			s, err = p.table(table)
			return s.State == "FAILED" || s.State == "RUNNING" && w.records(table) == len(w.inst.Rows(table, nil)), err
		})
		p.Kill()
		return s
	}
	without := func(i int) []right {
		return append(append([]right{}, all[:i]...), all[i+1:]...)
	}
	for i, r := range slices.Backward(all) { // Create comes first, of the cursor topic first: they exist afterwards
		if r.op == kmsg.ACLOperationCreate {
			if s := try(without(i)); s.State != "FAILED" || !strings.Contains(s.Error, "Create") {
				t.Errorf("without %v: %s %s", r, s.State, s.Error)
			} else {
				t.Logf("without %v: %s", r, s.Error)
			}
		}
	}
	if s := try(all); s.State != "RUNNING" {
		t.Fatalf("with everything: %+v", s)
	}
	for i, r := range all {
		s := try(without(i))
		t.Logf("without %v: %s %s", r, s.State, s.Error)
		if r.op == kmsg.ACLOperationCreate {
			if s.State != "RUNNING" {
				t.Errorf("without %v, which nothing needs now: %+v", r, s)
			}
		} else if s.State != "FAILED" || !strings.Contains(s.Error, "ACL") {
			t.Errorf("without %v: %+v", r, s)
		}
	}

	w.topic(updates, 1, map[string]string{"retention.ms": "-1"})
	w.topic(updateFails, 1, nil)
	w.topic("dead", 1, nil)
	w.produce(0, 10)
	sink := []right{
		{kmsg.ACLResourceTypeTopic, updates, false, kmsg.ACLOperationRead},
		{kmsg.ACLResourceTypeGroup, "connect-updates", false, kmsg.ACLOperationRead},
		{kmsg.ACLResourceTypeTopic, updateFails, false, kmsg.ACLOperationWrite},
		{kmsg.ACLResourceTypeTopic, "dead", false, kmsg.ACLOperationWrite},
	}
	configSink := w.configureSink(maps.Clone(sasl).with(settings{
		"group.instance.id": "", "errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead",
		"errors.deadletterqueue.topic.replication.factor": 1,
	}))
	w.revokeAll(principal)
	w.grant(principal, sink...)
	p := w.run(configSink)
	w.settled(10)
	p.signal(syscall.SIGTERM)
	p.exits(0)
	w.once(10)
	for i, r := range sink {
		w.revokeAll(principal)
		w.grant(principal, append(append([]right{}, sink[:i]...), sink[i+1:]...)...)
		p := w.run(configSink)
		if code, err := p.Wait(w.ctx()); err != nil || code != 1 && code != 4 { // 4: the input is refused
			t.Errorf("exit code %d (%v)", code, err)
		}
		m := p.logged("the pipeline failed")
		said, _ := m["error"].(string)
		t.Logf("without %v: %s", r, said)
		if m["class"] != "BROKER_REFUSED" || !strings.Contains(said, "ACL") {
			t.Errorf("without %v: %v", r, m)
		}
	}
}
