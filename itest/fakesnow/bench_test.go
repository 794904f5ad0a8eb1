package fakesnow

import (
	"io"
	"net/http"
	"testing"
)

func BenchmarkGenerate(b *testing.B) {
	for b.Loop() {
		fixed(Options{Seed: 7}).Generate("incident", 10_000, GenOptions{})
	}
}

// BenchmarkPage serves the same page of 5,000 rows of 60 fields again and again (blocks cached), from
// stored and from computed rows.
func BenchmarkPage(b *testing.B) {
	in := fixed(Options{Seed: 7})
	in.Generate("incident", 20_000, GenOptions{})
	in.GenerateComputed("change_request", 1_000_000, GenOptions{})
	for _, table := range []string{"incident", "change_request"} {
		for _, encoding := range []string{"gzip", "identity"} {
			b.Run(table+"/"+encoding, func(b *testing.B) {
				path := listPath(table, "sys_updated_on>2020-02-05 00:00:00^ORDERBYsys_updated_on^ORDERBYsys_id", "sysparm_limit=5000", "sysparm_exclude_reference_link=true")
				req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://fake.test"+path, nil)
				if err != nil {
					b.Fatal(err)
				}
				req.SetBasicAuth("admin", "admin")
				req.Header.Set("Accept-Encoding", encoding)
				for b.Loop() {
					resp, err := in.Transport().RoundTrip(req)
					if err != nil {
						b.Fatal(err)
					}
					n, err := io.Copy(io.Discard, resp.Body)
					if err != nil || n == 0 {
						b.Fatal(n, err)
					}
					b.SetBytes(n)
					_ = resp.Body.Close()
				}
			})
		}
	}
}

// BenchmarkFreshPage serves pages that were never asked for, as a backfill does.
func BenchmarkFreshPage(b *testing.B) {
	in := fixed(Options{Seed: 7, CacheBytes: 1})
	in.Generate("incident", 20_000, GenOptions{})
	path := listPath("incident", "ORDERBYsys_updated_on^ORDERBYsys_id", "sysparm_limit=5000", "sysparm_exclude_reference_link=true")
	for _, encoding := range []string{"gzip", "identity"} {
		b.Run(encoding, func(b *testing.B) {
			req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://fake.test"+path, nil)
			if err != nil {
				b.Fatal(err)
			}
			req.SetBasicAuth("admin", "admin")
			req.Header.Set("Accept-Encoding", encoding)
			for b.Loop() {
				resp, err := in.Transport().RoundTrip(req)
				if err != nil {
					b.Fatal(err)
				}
				if _, err = io.Copy(io.Discard, resp.Body); err != nil {
					b.Fatal(err)
				}
				_ = resp.Body.Close()
			}
		})
	}
}
