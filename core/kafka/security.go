package kafka

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

var (
	protocols  = []string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}
	mechanisms = []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}
)

const (
	convertTrust = "convert it: keytool -exportcert -rfc -alias <alias> -keystore <file> > truststore.pem"
	convertKey   = "convert it: keytool -importkeystore -srckeystore <file> -destkeystore store.p12 -deststoretype PKCS12; " +
		"openssl pkcs12 -in store.p12 -out keystore.pem"
)

// security reads the settings of TLS and SASL, which only make sense together.
func (b *builder) security() []error {
	protocol := or(b.settings["security.protocol"], "PLAINTEXT")
	var errs []error
	if strings.HasSuffix(protocol, "SSL") {
		config, problems := b.tls()
		errs = append(errs, problems...)
		b.add(kgo.DialTLSConfig(config))
	}
	if strings.HasPrefix(protocol, "SASL_") {
		if err := b.sasl(); err != nil {
			errs = append(errs, err)
		}
	} else if b.settings["sasl.mechanism"] != "" {
		errs = append(errs, fmt.Errorf("kafka.sasl.mechanism: has no effect with security.protocol=%s", protocol))
	}
	return errs
}

func (b *builder) sasl() error {
	user, password := b.settings["sasl.username"], b.settings["sasl.password"]
	if jaas := b.settings["sasl.jaas.config"]; jaas != "" {
		options, err := parseJAAS(jaas)
		if err != nil {
			return fmt.Errorf("kafka.sasl.jaas.config: %w", err)
		}
		user, password = options["username"], options["password"]
	}
	if user == "" || password == "" {
		return errors.New("kafka.sasl.jaas.config: must give username and password, or set kafka.sasl.username and kafka.sasl.password")
	}
	switch mechanism := b.settings["sasl.mechanism"]; mechanism {
	case "PLAIN":
		b.add(kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	case "SCRAM-SHA-256":
		b.add(kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		b.add(kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()))
	case "":
		return errors.New("kafka.sasl.mechanism: is required, one of " + strings.Join(mechanisms, ", "))
	}
	return nil
}

// parseJAAS reads the options of a JAAS entry: `<module> required name="value" ...;`.
// Its errors hold no part of the text, which is a secret (Invariant 8).
func parseJAAS(s string) (map[string]string, error) {
	s = strings.TrimSpace(s)
	s, ok := strings.CutSuffix(s, ";")
	if !ok {
		return nil, errors.New("does not end with a semicolon")
	}
	s = strings.TrimSpace(s)
	for range 2 { // module and control flag
		blank := strings.IndexAny(s, " \t\r\n")
		if blank < 0 {
			return nil, errors.New("is not `<module> required username=\"...\" password=\"...\";`")
		}
		s = strings.TrimLeft(s[blank:], " \t\r\n")
	}
	options := map[string]string{}
	for s != "" {
		name, rest, ok := strings.Cut(s, "=")
		name, rest = strings.TrimSpace(name), strings.TrimLeft(rest, " \t\r\n")
		if !ok || name == "" {
			return nil, errors.New("has an option without a value")
		}
		value, rest, err := jaasValue(rest)
		if err != nil {
			return nil, err
		}
		options[name] = value
		s = strings.TrimLeft(rest, " \t\r\n")
	}
	return options, nil
}

// jaasValue reads a quoted value, in which a backslash takes the next character as
// it is, or a bare one up to the next blank.
func jaasValue(s string) (value, rest string, err error) {
	if s == "" || (s[0] != '"' && s[0] != '\'') {
		if blank := strings.IndexAny(s, " \t\r\n"); blank >= 0 {
			return s[:blank], s[blank:], nil
		}
		return s, "", nil
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == s[0]:
			return b.String(), s[i+1:], nil
		case s[i] == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", errors.New("has a quote that does not end")
}

func (b *builder) tls() (*tls.Config, []error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	var errs []error
	if trust, err := b.pem("ssl.truststore.certificates", "ssl.truststore.location", convertTrust); err != nil {
		errs = append(errs, err)
	} else if trust != nil {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(trust) {
			errs = append(errs, errors.New("kafka.ssl.truststore: holds no PEM certificate; "+convertTrust))
		}
	}
	if cert, err := b.certificate(); err != nil {
		errs = append(errs, err)
	} else if cert != nil {
		config.Certificates = []tls.Certificate{*cert}
	}
	if algorithm, set := b.settings["ssl.endpoint.identification.algorithm"]; set && strings.TrimSpace(algorithm) == "" {
		anyHost(config)
	}
	return config, errs
}

// anyHost verifies the chain of the broker's certificate, but not its host name.
func anyHost(config *tls.Config) {
	config.InsecureSkipVerify = true // replaced by VerifyConnection
	config.VerifyConnection = func(state tls.ConnectionState) error {
		options := x509.VerifyOptions{Roots: config.RootCAs, Intermediates: x509.NewCertPool()}
		for _, c := range state.PeerCertificates[1:] {
			options.Intermediates.AddCert(c)
		}
		_, err := state.PeerCertificates[0].Verify(options)
		return err
	}
}

// certificate reads the client's certificate, nil when there is none.
func (b *builder) certificate() (*tls.Certificate, error) {
	chain, key := []byte(b.settings["ssl.keystore.certificate.chain"]), []byte(b.settings["ssl.keystore.key"])
	if (len(chain) > 0) != (len(key) > 0) {
		return nil, errors.New("kafka.ssl.keystore.key: goes only together with kafka.ssl.keystore.certificate.chain")
	}
	if len(key) == 0 {
		store, err := b.pem("", "ssl.keystore.location", convertKey)
		if err != nil || store == nil {
			return nil, err
		}
		chain, key = store, store
	}
	plainKey, err := decryptKey(key, b.settings["ssl.key.password"])
	if err != nil {
		return nil, fmt.Errorf("kafka.ssl.keystore: %w", err)
	}
	cert, err := tls.X509KeyPair(chain, plainKey)
	if err != nil {
		return nil, fmt.Errorf("kafka.ssl.keystore: %w", err)
	}
	return &cert, nil
}

// pem returns the PEM text of the setting inline, or of the file that the setting
// location names; nil when neither is set.
func (b *builder) pem(inline, location, convert string) ([]byte, error) {
	if text := b.settings[inline]; text != "" {
		return []byte(text), nil
	}
	path := strings.TrimSpace(b.settings[location])
	if path == "" {
		return nil, nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("kafka.%s: %w", location, err)
	}
	if !bytes.Contains(content, []byte("-----BEGIN ")) {
		return nil, fmt.Errorf("kafka.%s: %s is no PEM file (JKS and PKCS12 are not read); %s", location, path, convert)
	}
	return content, nil
}

func storeType(_ *builder, value string) error {
	if strings.EqualFold(value, "PEM") {
		return nil
	}
	return fmt.Errorf("%s stores are not read, only PEM; %s, and set the type to PEM", or(value, "empty"), convertKey)
}
