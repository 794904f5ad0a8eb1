package fakesnow

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	tokenPath = "/oauth_token.do"
	bodyMax   = 10 << 20
)

// request is an HTTP request on its way through the instance.
type request struct {
	*http.Request
	query url.Values
	body  []byte
	user  *user
	base  string // scheme://host of the caller's view

	api   string // table, stats, batch, import, token
	v1    bool
	table string
	id    string
	hits  []hit

	noGzip bool
}

// route reads the path. ok is false when it names no resource.
func (r *request) route() (ok bool) {
	path := r.URL.EscapedPath()
	if path == tokenPath {
		r.api = "token"
		return true
	}
	rest, ok := strings.CutPrefix(path, "/api/now/")
	if !ok {
		return false
	}
	var parts []string
	for _, p := range strings.Split(strings.Trim(rest, "/"), "/") {
		text, err := url.PathUnescape(p)
		if err != nil {
			return false
		}
		parts = append(parts, text)
	}
	if parts[0] == "v1" || parts[0] == "v2" {
		r.v1 = parts[0] == "v1"
		parts = parts[1:]
	}
	if len(parts) == 0 {
		return false
	}
	r.api = parts[0]
	if len(parts) > 1 {
		r.table = parts[1]
	}
	if len(parts) > 2 {
		r.id = parts[2]
	}
	switch r.api {
	case "table":
		return len(parts) == 2 || len(parts) == 3
	case "stats":
		return len(parts) == 2
	case "import":
		return len(parts) == 2 || len(parts) == 3 && r.id == "insertMultiple"
	case "batch":
		return len(parts) == 1
	}
	return false
}

// serve takes a request through journal, faults and API. readBody is not called when the connection
// is reset before. inProcess tells that the Transport asks. The caller must call reply.done.
func (in *Instance) serve(hr *http.Request, readBody func() ([]byte, error), inProcess bool) *reply {
	r := &request{Request: hr, query: hr.URL.Query()}
	r.base = "http://" + hr.Host
	if hr.TLS != nil || hr.URL.Scheme == "https" {
		r.base = "https://" + hr.Host
	}
	found := r.route()
	now := in.Now()
	e := Entry{
		Time: now, Method: hr.Method, Path: hr.URL.Path, Table: r.table, SysID: r.id, Query: r.query,
		Headers: hr.Header.Clone(), User: in.claimed(hr),
	}
	in.journal.enter(e.User)
	query, err := url.QueryUnescape(hr.URL.RawQuery)
	if err != nil {
		query = hr.URL.RawQuery
	}
	nth := in.faults.number(r.table, hr.Method)
	r.hits = in.faults.strike(e, query, nth, true, inProcess, now)
	var rep *reply
	if len(r.hits) > 0 {
		rep = &reply{end: resetEarly}
		if r.hits[0].Kind == FaultRefuse {
			rep.end = refused
		}
	} else {
		r.body, err = readBody()
		e.BodySize = len(r.body)
		e.Body = string(r.body)
		r.hits = in.faults.strike(e, query, nth, false, inProcess, now)
		e.Body = e.Body[:min(len(e.Body), in.journal.bodyMax)]
		var tooLarge *http.MaxBytesError
		switch {
		case errors.As(err, &tooLarge):
			rep = errorReply(http.StatusRequestEntityTooLarge, "Rejected large REST payload", "Rejected large REST payload with content-length = "+itoa(int(hr.ContentLength))+" bytes. Max allowed: 10485760 bytes.")
		case err != nil:
			rep = &reply{end: resetLate}
		default:
			rep = in.spoil(r, func() *reply { return in.answer(r, found) })
		}
	}
	if rep.header != nil {
		in.decorate(r, rep)
		e.Status = rep.status
	}
	e.RowsReturned = rep.rows
	for _, h := range r.hits {
		if h.Kind != FaultRateLimit || h.over {
			e.Faults = append(e.Faults, h.Kind)
		}
	}
	if rep.end == resetLate || rep.end == stalled {
		e.Status = 0
	}
	e = in.journal.add(e)
	in.hookMu.RLock()
	hook := in.hook
	in.hookMu.RUnlock()
	if hook != nil {
		hook(e)
	}
	rep.done = func() { in.journal.leave(e.User) }
	return rep
}

// decorate adds the headers that every answer has and compresses bodies not compressed yet.
func (in *Instance) decorate(r *request, rep *reply) {
	h := rep.header
	h.Set("Date", in.Now().Format(http.TimeFormat))
	h.Set("Server", "ServiceNow")
	if r.api != "token" {
		h.Set("X-Is-Logged-In", boolText(r.user != nil))
		if h.Get("X-Transaction-ID") == "" {
			h.Set("X-Transaction-ID", hashID("transaction", in.Now().String())[:16])
		}
	}
	if in.Setting(SettingCookies) != "off" && r.user != nil {
		h.Add("Set-Cookie", "JSESSIONID="+hashID("session", r.user.name)+"; Path=/; HttpOnly")
		h.Add("Set-Cookie", "BIGipServerpool_fake=1234567890.12345.0000; path=/; Httponly")
	}
	if h.Get("Content-Encoding") == "" && len(rep.parts) > 0 && rep.size() > 256 && in.wantsGzip(r) {
		rep.parts = zip(rep.body())
		h.Set("Content-Encoding", "gzip")
	}
}

func (in *Instance) wantsGzip(r *request) bool {
	if r.noGzip || in.Setting(SettingGzip) == "off" {
		return false
	}
	for _, item := range strings.Split(r.Header.Get("Accept-Encoding"), ",") {
		name, q, _ := strings.Cut(strings.TrimSpace(item), ";")
		if name == "gzip" {
			q = strings.TrimPrefix(strings.TrimSpace(q), "q=")
			return strings.Trim(q, "0.") != "" || q == ""
		}
	}
	return false
}

// answer is what the instance says when nothing is broken.
func (in *Instance) answer(r *request, found bool) *reply {
	if max := in.number(SettingURIMax, 16384); len(r.URL.RequestURI()) > max {
		return htmlReply(http.StatusRequestURITooLong, "414 Request-URI Too Large")
	}
	if !found && !strings.HasPrefix(r.URL.Path, "/api/") {
		return htmlReply(http.StatusNotFound, "Page not found")
	}
	if r.api == "token" {
		return in.tokenEndpoint(r)
	}
	r.user = in.authenticate(r.Request)
	if r.user == nil {
		return unauthorized()
	}
	if !found {
		return noResource()
	}
	return in.dispatch(r)
}

// dispatch serves a request whose user is known.
func (in *Instance) dispatch(r *request) *reply {
	switch r.api {
	case "batch":
		return in.batch(r)
	case "import":
		return in.importSet(r)
	}
	in.mu.RLock()
	t, denied := in.tables[r.table], in.isDenied(r.user, r.table)
	in.mu.RUnlock()
	switch {
	case t == nil:
		return invalidTable(r.table)
	case denied:
		return errorReply(http.StatusForbidden, "Failed API level ACL Validation", "")
	case t.comp != nil && r.Method != http.MethodGet:
		return errorReply(http.StatusForbidden, failedOperation, "Operation against file '"+t.name+"' was aborted by Business Rule 'Computed rows are read only'")
	case t.view && (r.Method != http.MethodGet || r.id != ""):
		return errorReply(http.StatusForbidden, failedOperation, "ACL Exception Insert Failed due to security constraints")
	case r.api == "stats" && r.Method == http.MethodGet:
		return in.stats(r, t)
	case r.api == "table":
		return in.tableAPI(r, t)
	}
	return errorReply(http.StatusMethodNotAllowed, "Method not supported", "")
}

func (in *Instance) tableAPI(r *request, t *table) *reply {
	switch {
	case r.Method == http.MethodGet && r.id == "":
		return in.list(r, t)
	case r.Method == http.MethodGet:
		return in.getOne(r, t)
	case r.Method == http.MethodPost && r.id == "":
		return in.create(r, t)
	case (r.Method == http.MethodPatch || r.Method == http.MethodPut) && r.id != "":
		return in.change(r, t)
	case r.Method == http.MethodDelete && r.id != "":
		return in.erase(r, t)
	}
	return errorReply(http.StatusMethodNotAllowed, "Method not supported", "")
}

// readAll reads a request body up to the limit of the instance.
func readAll(body io.Reader) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	b, err := io.ReadAll(io.LimitReader(body, bodyMax+1))
	if len(b) > bodyMax {
		return b[:bodyMax], &http.MaxBytesError{Limit: bodyMax}
	}
	return b, err
}

// latency is how long a latency fault waits.
func (h hit) latency() time.Duration {
	p := h.Params
	ms := float64(p.MS)
	if p.MaxMS > p.MinMS {
		ms += float64(p.MinMS) + float64(h.dice>>11)/(1<<53)*float64(p.MaxMS-p.MinMS)
	}
	return time.Duration(ms * float64(time.Millisecond))
}
