package fakesnow

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// tokenEndpoint is /oauth_token.do: client_credentials, password and refresh_token. A request within
// the lifetime of a token gets the same token.
func (in *Instance) tokenEndpoint(r *request) *reply {
	denied := func() *reply {
		return newReply(http.StatusUnauthorized).set([]byte(`{"error_description":"access_denied","error":"server_error"}`), jsonType)
	}
	if r.Method != http.MethodPost || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		return denied()
	}
	form, err := url.ParseQuery(string(r.body))
	if err != nil {
		return denied()
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.opts.Clients) > 0 {
		secret, ok := in.opts.Clients[form.Get("client_id")]
		if !ok || secret != form.Get("client_secret") {
			return denied()
		}
	}
	var u *user
	switch form.Get("grant_type") {
	case "client_credentials":
		u = in.users["admin"]
		if mapped := in.users[form.Get("client_id")]; mapped != nil {
			u = mapped
		}
	case "password":
		u = in.login(form.Get("username"), form.Get("password"))
	case "refresh_token":
		u = in.users[in.refresh[form.Get("refresh_token")]]
	}
	if u == nil {
		return denied()
	}
	now := in.Now()
	life := 1800
	if n := in.settings[SettingTokenSeconds]; n != "" {
		if d, err := time.ParseDuration(n + "s"); err == nil {
			life = int(d / time.Second)
		}
	}
	access := ""
	for text, t := range in.tokens {
		switch {
		case !now.Before(t.ends):
			delete(in.tokens, text)
		case t.user == u.name:
			access, life = text, int(t.ends.Sub(now)/time.Second)
		}
	}
	if access == "" {
		access = in.newID() + in.newID()
		in.tokens[access] = token{user: u.name, ends: now.Add(time.Duration(life) * time.Second)}
	}
	body := map[string]any{"scope": "useraccount", "token_type": "Bearer", "expires_in": max(0, life-1), "access_token": access}
	if form.Get("grant_type") != "client_credentials" {
		refresh := hashID("refresh", u.name)
		in.refresh[refresh] = u.name
		body["refresh_token"] = refresh
	}
	return jsonReply(http.StatusOK, body)
}

// ExpireTokens makes every access token invalid at once; refresh tokens stay.
func (in *Instance) ExpireTokens() {
	in.mu.Lock()
	clear(in.tokens)
	in.mu.Unlock()
}

type batchPart struct {
	ID      string `json:"id"`
	Method  string `json:"method"`
	URL     string `json:"url"`
	Body    string `json:"body"`
	Headers []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"headers"`
	NoHeaders bool `json:"exclude_response_headers"`
}

// batch is the Batch API: each request of it is answered like one of its own, under its own faults
// (status faults leave it unserviced when Params.Variant is "unserviced").
func (in *Instance) batch(r *request) *reply {
	var doc struct {
		ID    string      `json:"batch_request_id"`
		Parts []batchPart `json:"rest_requests"`
	}
	if r.Method != http.MethodPost {
		return errorReply(http.StatusMethodNotAllowed, "Method not supported", "")
	}
	if err := json.Unmarshal(r.body, &doc); err != nil {
		return errorReply(http.StatusBadRequest, "Exception while reading request", "The payload is not valid JSON.")
	}
	serviced, unserviced := []any{}, []string{}
	for _, p := range doc.Parts {
		rep, skipped := in.batchOne(r, p)
		if skipped {
			unserviced = append(unserviced, p.ID)
			continue
		}
		headers := []any{}
		for name, vals := range rep.header {
			if !p.NoHeaders {
				headers = append(headers, map[string]string{"name": name, "value": vals[0]})
			}
		}
		serviced = append(serviced, map[string]any{
			"id": p.ID, "body": base64.StdEncoding.EncodeToString(rep.body()), "status_code": rep.status,
			"status_text": http.StatusText(rep.status), "headers": headers, "execution_time": 1,
		})
	}
	return jsonReply(http.StatusOK, map[string]any{"batch_request_id": doc.ID, "serviced_requests": serviced, "unserviced_requests": unserviced})
}

func (in *Instance) batchOne(r *request, p batchPart) (rep *reply, unserviced bool) {
	body, err := base64.StdEncoding.DecodeString(p.Body)
	if err != nil {
		return errorReply(http.StatusBadRequest, "Exception while reading request", "The body is not base64."), false
	}
	hr, err := http.NewRequestWithContext(r.Context(), p.Method, r.base+p.URL, bytes.NewReader(body))
	if err != nil {
		return noResource(), false
	}
	for _, h := range p.Headers {
		hr.Header.Set(h.Name, h.Value)
	}
	hr.Header.Del("Accept-Encoding")
	sub := &request{Request: hr, query: hr.URL.Query(), body: body, user: r.user, base: r.base, noGzip: true}
	if !sub.route() || sub.api == "batch" {
		return noResource(), false
	}
	e := Entry{
		Time: in.Now(), Method: p.Method, Path: hr.URL.Path, Table: sub.table, SysID: sub.id, Query: sub.query,
		Headers: hr.Header, User: r.user.name, Body: string(body), BodySize: len(body),
	}
	nth := in.faults.number(sub.table, p.Method)
	sub.hits = in.faults.strike(e, hr.URL.RawQuery, nth, false, true, in.Now())
	for _, h := range sub.hits {
		e.Faults = append(e.Faults, h.Kind)
		unserviced = unserviced || h.Params.Variant == "unserviced"
	}
	if !unserviced {
		rep = in.spoil(sub, func() *reply { return in.dispatch(sub) })
		if unserviced = rep.end == resetLate || rep.end == stalled; !unserviced {
			e.Status, e.RowsReturned = rep.status, rep.rows
		}
	}
	e.Body = e.Body[:min(len(e.Body), in.journal.bodyMax)]
	in.journal.add(e)
	return rep, unserviced
}

// importSet is the Import Set API: the staging table is the target too, with a transform map that
// copies every field.
func (in *Instance) importSet(r *request) *reply {
	if r.Method != http.MethodPost {
		return errorReply(http.StatusMethodNotAllowed, "Method not supported", "")
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.importSeq++
	set := "ISET" + itoa(10000+in.importSeq)
	t := in.tables[r.table]
	if t == nil {
		return jsonReply(http.StatusCreated, map[string]any{
			"import_set": set, "staging_table": r.table,
			"result": []any{map[string]any{"transform_map": "", "status": "error", "error_message": "Invalid table "}},
		})
	}
	if r.id == "insertMultiple" {
		var doc struct {
			Records []map[string]any `json:"records"`
		}
		if err := json.Unmarshal(r.body, &doc); err != nil {
			return errorReply(http.StatusBadRequest, "Exception while reading request", "The payload is not valid JSON.")
		}
		for _, rec := range doc.Records {
			fields := map[string]string{}
			for name, v := range rec {
				fields[name] = storedText(v)
			}
			in.upsert(r, t, fields)
		}
		return jsonReply(http.StatusCreated, map[string]any{"import_set_id": hashID("import", set), "multi_import_set_id": hashID("multi", set)})
	}
	given, bad := r.payload()
	if bad != nil {
		return bad
	}
	x, status := in.upsert(r, t, given)
	if x == nil {
		return jsonReply(http.StatusCreated, map[string]any{
			"import_set": set, "staging_table": r.table,
			"result": []any{map[string]any{"transform_map": "Default", "status": "error", "error_message": status}},
		})
	}
	return jsonReply(http.StatusCreated, map[string]any{
		"import_set": set, "staging_table": r.table,
		"result": []any{map[string]any{
			"transform_map": "Default", "table": t.name, "display_name": "number", "display_value": x.get("number"),
			"record_link": r.base + "/api/now/table/" + t.name + "/" + x.id, "status": status, "sys_id": x.id,
		}},
	})
}

// upsert inserts a row, or updates the one with the given sys_id.
func (in *Instance) upsert(r *request, t *table, given map[string]string) (*row, string) {
	old := in.find(t, given["sys_id"])
	if old == nil {
		x, refused := in.createRow(r, t, given)
		if refused != nil {
			return nil, string(refused.body())
		}
		return x, "inserted"
	}
	fields, notes := in.accepted(r, old.class, given, false)
	in.stamp(old, fields, r.user.name)
	next := in.build(old.class, old, fields)
	in.replace(old, next)
	in.journalNotes(next, notes, r.user.name)
	return next, "updated"
}
