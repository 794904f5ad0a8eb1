package kafka

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"snowmelt/core/failure"
)

func TestOptions(t *testing.T) {
	opts, err := Options(map[string]string{
		"bootstrap.servers": "a:1, [::1]:2", "client.id": "x", "acks": "all", "enable.idempotence": "true",
		"compression.type": "lz4", "linger.ms": "7", "batch.size": "16384", "max.request.size": "2000000",
		"request.timeout.ms": "5000", "connections.max.idle.ms": "60000", "metadata.max.age.ms": "30000", "retries": "4",
		"max.in.flight.requests.per.connection": "5", "security.protocol": "PLAINTEXT",
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := Connect(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := c.client.OptValue(kgo.SeedBrokers).([]string); len(got) != 2 || got[0] != "a:1" || got[1] != "[::1]:2" {
		t.Errorf("brokers %v", got)
	}
	for option, want := range map[string]any{
		"ClientID": "x", "ProducerLinger": 7 * time.Millisecond, "ProduceRequestTimeout": 5 * time.Second,
		"ConnIdleTimeout": time.Minute, "MetadataMaxAge": 30 * time.Second,
	} {
		if got := c.client.OptValue(option); got != want {
			t.Errorf("%s is %v, want %v", option, got, want)
		}
	}
	if c.requestSize != 2000000 || c.limit("unknown") != 2000000 {
		t.Errorf("request size %d", c.requestSize)
	}
}

func TestOptionsReportsEverythingAtOnce(t *testing.T) {
	_, err := Options(map[string]string{
		"bootstrap.servres": "a:1", "acks": "1", "linger.ms": "soon", "compression.type": "rar", "batch.size": "-1",
		"enable.idempotence": "false", "request.timeout.ms": "1", "security.protocol": "TLS", "client.id": "",
		"sasl.mechanism": "GSSAPI", "max.in.flight.requests.per.connection": "6",
	})
	wantClass(t, err, failure.Misconfigured)
	wantText(t, err,
		"kafka.bootstrap.servres: no such setting, the nearest is kafka.bootstrap.servers", "kafka.bootstrap.servers: is required",
		"kafka.acks: must be all", "kafka.linger.ms", "kafka.compression.type", "kafka.batch.size", "kafka.enable.idempotence",
		"kafka.request.timeout.ms", "kafka.security.protocol", "kafka.client.id", "kafka.sasl.mechanism", "kafka.max.in.flight")
	for _, servers := range []string{"", ",", "host", ":9092", "host:", "host:0", "host:99999", "a:1,b"} {
		if _, err := Options(map[string]string{"bootstrap.servers": servers}); err == nil {
			t.Errorf("%q was taken", servers)
		}
	}
}

func TestJAAS(t *testing.T) {
	const module = "org.apache.kafka.common.security.scram.ScramLoginModule required "
	for text, want := range map[string][2]string{
		module + `username="u" password="p w;=\"q\"";`:               {"u", `p w;="q"`},
		module + "\n  username='u'\n  password='p'\n;":               {"u", "p"},
		module + `serviceName=kafka username=u password = "p\\" ;  `: {"u", `p\`},
	} {
		got, err := parseJAAS(text)
		if err != nil || got["username"] != want[0] || got["password"] != want[1] {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", ";", "x;", module + `username="s3cret"`, module + `password="s3cret;`, module + "s3cret;", module + `="s3cret";`} {
		_, err := Options(map[string]string{
			"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": text,
		})
		if err == nil {
			t.Errorf("%q was taken", text)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the secret shows: %v", err)
		}
	}
}

func FuzzJAAS(f *testing.F) {
	f.Add(`m required username="u" password='p\'';`)
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := parseJAAS(text); err != nil && len(text) > 40 && strings.Contains(err.Error(), text) {
			t.Fatal("the text shows")
		}
	})
}

func TestSASL(t *testing.T) {
	r := newRig(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", "p"),
		kfake.Superuser("SCRAM-SHA-256", "u", "p"), kfake.Superuser("SCRAM-SHA-512", "u", "p"))
	for _, mechanism := range mechanisms {
		settings := map[string]string{
			"bootstrap.servers": "localhost:9092", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism,
			"sasl.username": "u", "sasl.password": "p",
		}
		opts, err := Options(settings)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.connect(nil, opts...).Ping(ctx(t)); err != nil {
			t.Errorf("%s: %v", mechanism, err)
		}
		settings["sasl.password"] = "wr0ng"
		opts, _ = Options(settings)
		err = r.connect(nil, opts...).Ping(within(t, time.Second))
		wantClass(t, err, failure.BrokerRefused, failure.Transient) // kfake hangs up instead of refusing
		if strings.Contains(err.Error(), "wr0ng") {
			t.Errorf("the password shows: %v", err)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestTLS(t *testing.T) {
	pair, err := tls.LoadX509KeyPair("testdata/cert.pem", "testdata/key.pem")
	if err != nil {
		t.Fatal(err)
	}
	clients := &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert}
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.TLS(clients))
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	keystore := filepath.Join(t.TempDir(), "keystore.pem")
	if err := os.WriteFile(keystore, []byte(read(t, "encrypted.pem")+read(t, "cert.pem")), 0o600); err != nil {
		t.Fatal(err)
	}
	ping := func(more map[string]string) error {
		settings := map[string]string{
			"bootstrap.servers": fake.ListenAddrs()[0], "security.protocol": "SSL",
			"ssl.truststore.location": "testdata/cert.pem", "ssl.truststore.type": "PEM",
			"ssl.keystore.location": keystore, "ssl.key.password": "changeit",
		}
		for name, v := range more {
			settings[name] = v
		}
		opts, err := Options(settings)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Connect(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.Ping(within(t, 3*time.Second))
	}
	for name, more := range map[string]map[string]string{
		"files":     nil,
		"inline":    {"ssl.truststore.certificates": read(t, "cert.pem"), "ssl.keystore.key": read(t, "encrypted_sha1.pem"), "ssl.keystore.certificate.chain": read(t, "cert.pem")},
		"plain key": {"ssl.keystore.key": read(t, "key.pem"), "ssl.keystore.certificate.chain": read(t, "cert.pem"), "ssl.key.password": ""},
		"any host":  {"ssl.endpoint.identification.algorithm": ""},
	} {
		if err := ping(more); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// no certificate of this client
	err = ping(map[string]string{"ssl.keystore.location": "", "ssl.key.password": ""})
	wantClass(t, err, failure.BrokerRefused)
	wantText(t, err, "ssl.keystore.location")
	// no truststore: the system's does not know the certificate
	err = ping(map[string]string{"ssl.truststore.location": "", "ssl.endpoint.identification.algorithm": ""})
	wantClass(t, err, failure.BrokerRefused)
	wantText(t, err, "ssl.truststore.location")
}

func TestStoresThatAreNotRead(t *testing.T) {
	jks := filepath.Join(t.TempDir(), "store.jks")
	if err := os.WriteFile(jks, []byte{0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2}, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		settings map[string]string
		says     string
	}{
		"jks truststore": {map[string]string{"ssl.truststore.location": jks}, "keytool -exportcert"},
		"jks keystore":   {map[string]string{"ssl.keystore.location": jks}, "keytool -importkeystore"},
		"type":           {map[string]string{"ssl.keystore.type": "JKS"}, "openssl pkcs12"},
		"absent":         {map[string]string{"ssl.truststore.location": "testdata/absent.pem"}, "absent.pem"},
		"key alone":      {map[string]string{"ssl.keystore.key": read(t, "key.pem")}, "certificate.chain"},
		"no password":    {map[string]string{"ssl.keystore.key": read(t, "encrypted.pem"), "ssl.keystore.certificate.chain": read(t, "cert.pem")}, "set kafka.ssl.key.password"},
		"wrong password": {map[string]string{"ssl.keystore.key": read(t, "encrypted.pem"), "ssl.keystore.certificate.chain": read(t, "cert.pem"), "ssl.key.password": "n0"}, "ssl.key"},
		"3des":           {map[string]string{"ssl.keystore.key": read(t, "encrypted_des.pem"), "ssl.keystore.certificate.chain": read(t, "cert.pem"), "ssl.key.password": "changeit"}, "openssl pkcs8"},
	} {
		test.settings["bootstrap.servers"], test.settings["security.protocol"] = "a:1", "SSL"
		_, err := Options(test.settings)
		if err == nil {
			t.Errorf("%s was taken", name)
			continue
		}
		wantClass(t, err, failure.Misconfigured)
		wantText(t, err, test.says)
	}
}

func TestEveryKnownSettingIsNearestToItself(t *testing.T) {
	if len(Known()) < 30 {
		t.Fatalf("%d settings", len(Known()))
	}
	for _, name := range Known() {
		if nearest(name) != name || nearest(name+"x") == "" {
			t.Errorf("nearest to %s is %s", name, nearest(name))
		}
	}
}
