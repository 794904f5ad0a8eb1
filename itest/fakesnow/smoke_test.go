package fakesnow

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/klauspost/compress/gzip"
)

func TestPagesOverBothTransports(t *testing.T) {
	in := fixed(Options{Seed: 7})
	in.Generate("incident", 2500, GenOptions{})
	srv, err := in.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	tr := &http.Transport{DisableCompression: true}
	defer tr.CloseIdleConnections()
	for _, table := range []string{"incident", "task"} {
		for _, params := range []string{"sysparm_limit=1000", "sysparm_limit=777"} {
			path := listPath(table, "sys_updated_on>2026-02-05 00:00:00^ORDERBYsys_updated_on^ORDERBYsys_id", params, "sysparm_exclude_reference_link=true")
			plain := call(t, in, "GET", path, "")
			for _, rt := range []struct {
				name string
				rt   http.RoundTripper
				base string
			}{{"transport", in.Transport(), "http://fake.test"}, {"server", tr, srv.URL()}} {
				for range 2 { // the second time from the cache
					zipped := callOver(t, rt.rt, rt.base, "GET", path, "", "Accept-Encoding", "gzip")
					if zipped.header.Get("Content-Encoding") != "gzip" {
						t.Fatalf("%s: not compressed", rt.name)
					}
					zr, err := gzip.NewReader(bytes.NewReader(zipped.body))
					if err != nil {
						t.Fatal(err)
					}
					got, err := io.ReadAll(zr)
					if err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(got, plain.body) {
						t.Fatalf("%s %s %s: %d bytes glued, %d plain", table, params, rt.name, len(got), len(plain.body))
					}
				}
			}
			if n := len(plain.listed(t)); n < 777 {
				t.Fatalf("%d rows", n)
			}
		}
	}
}

func TestWarm(t *testing.T) {
	in := fixed(Options{Seed: 7, GzipLevel: 6})
	in.Generate("incident", 1000, GenOptions{})
	if n := in.Warm("http://fake.test", "admin", "incident", "", true); n != 10 {
		t.Fatalf("%d blocks", n)
	}
	blocks := len(in.blocks.items)
	path := listPath("incident", "ORDERBYsys_updated_on^ORDERBYsys_id", "sysparm_exclude_reference_link=true")
	if a := call(t, in, "GET", path, "", "Accept-Encoding", "gzip"); a.status != 200 || len(in.blocks.items) != blocks || blocks != 10 {
		t.Errorf("%d blocks after Warm, %d after a page", blocks, len(in.blocks.items))
	}
}

func TestCreateChangeDelete(t *testing.T) {
	in := fixed(Options{})
	a := call(t, in, "POST", "/api/now/table/incident", `{"short_description":"a","nonsense":1,"impact":1,"urgency":"2"}`)
	r := a.record(t)
	if a.status != 201 || r["number"] != "INC0010001" || r["priority"] != "2" || r["sys_mod_count"] != "0" || r["state"] != "1" {
		t.Fatalf("%d %v", a.status, r)
	}
	id := r["sys_id"].(string)
	a = call(t, in, "PATCH", "/api/now/table/incident/"+id, `{"work_notes":"x","short_description":"b","sys_created_by":"me"}`)
	if r = a.record(t); r["short_description"] != "b" || r["sys_mod_count"] != "1" || r["work_notes"] != "" || r["sys_created_by"] != "admin" {
		t.Fatalf("%v", r)
	}
	if n := in.Count("sys_journal_field"); n != 1 {
		t.Fatalf("%d journal rows", n)
	}
	if a = call(t, in, "DELETE", "/api/now/table/task/"+id, ""); a.status != 204 || len(a.body) != 0 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	rows := in.Rows("sys_audit_delete", nil)
	if len(rows) != 1 || rows[0]["tablename"] != "incident" || rows[0]["documentkey"] != id {
		t.Fatalf("%v", rows)
	}
}
