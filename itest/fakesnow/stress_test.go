package fakesnow

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// TestReadersAmongWriters reads pages of all kinds while rows, columns and ACLs change; the race
// detector and the order of each page are what can fail.
func TestReadersAmongWriters(t *testing.T) {
	in := fixed(Options{Seed: 1, CacheBytes: 1 << 20})
	in.Generate("incident", 600, GenOptions{})
	ids := in.Rows("incident", nil)
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			for i := range 60 {
				id := ids[(i*7+w)%len(ids)]["sys_id"]
				switch i % 6 {
				case 0:
					in.Insert("incident", map[string]string{fmt.Sprintf("u_c%d", i): "x"})
				case 1:
					call(t, in, "PATCH", "/api/now/table/incident/"+id, fmt.Sprintf(`{"short_description":"%d"}`, i))
				case 2:
					in.Touch("incident", id, nil)
				case 3:
					call(t, in, "POST", "/api/now/table/problem", `{}`)
				case 4:
					in.Delete("task", id)
				default:
					in.HideField("", "incident", fmt.Sprintf("u_c%d", i))
					in.SetSetting(SettingInvalidTerm, "drop")
				}
			}
		})
	}
	for _, params := range [][]string{{"sysparm_display_value=all"}, {"sysparm_fields=sys_id,sys_updated_on,caller_id.name"}, {}} {
		wg.Go(func() {
			for range 15 {
				a := call(t, in, "GET", listPath("task", "ORDERBYsys_updated_on^ORDERBYsys_id", append(params, "sysparm_limit=300")...), "")
				last := ""
				for _, r := range a.listed(t) {
					key := fmt.Sprint(r["sys_updated_on"], r["sys_id"])
					if key < last {
						t.Errorf("%s after %s", key, last)
					}
					last = key
				}
			}
		})
	}
	wg.Wait()
	if in.Count("task") != len(in.Rows("task", nil)) {
		t.Errorf("counted %d, listed %d", in.Count("task"), len(in.Rows("task", nil)))
	}
}

func TestMutualTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bob"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	pair := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	in := fixed(Options{Users: map[string]string{"bob": "b"}})
	srv, err := in.ListenTLS("127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		certs  []tls.Certificate
		status int
	}{{[]tls.Certificate{pair}, 200}, {nil, 401}} {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: c.certs, MinVersion: tls.VersionTLS12}}
		if a := callOver(t, tr, srv.URL(), "GET", "/api/now/table/incident", "", "Authorization", ""); a.status != c.status {
			t.Errorf("with %d certificates: %d %s", len(c.certs), a.status, a.body)
		}
		tr.CloseIdleConnections()
	}
	in.AddFault(Fault{Kind: FaultResetAfter})
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}}
	if _, err := try(t, tr, srv.URL(), "GET", "/api/now/table/incident", ""); err == nil {
		t.Error("a reset over TLS was an answer")
	}
	tr.CloseIdleConnections()
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	if _, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", srv.Addr()); err == nil {
		t.Error("a closed server accepts connections")
	}
}
