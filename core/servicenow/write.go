package servicenow

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"

	"snowmelt/core/failure"
)

// WriteRequest is one write of the Table API.
type WriteRequest struct {
	// Method is POST, PATCH, PUT or DELETE.
	Method string
	Table  string
	// SysID is empty for a POST.
	SysID string
	// Body is the JSON object to send, nil for a DELETE.
	Body []byte
}

// Written is a write that the instance confirmed.
type Written struct {
	Status int
	// SysID is that of the row as the instance names it.
	SysID string
	// RequestID is the X-Request-Id that was sent.
	RequestID string
}

// Write sends one request, once. Success is PATCH, PUT 200, POST 201, DELETE 204
// with the body that belongs to it; a 2xx of another kind says nothing about the
// outcome and is Ambiguous, like an answer that never came (sink.md section 3).
func (c *Client) Write(ctx context.Context, r WriteRequest) (Written, error) {
	op := r.Method + " " + r.Table
	path := "/api/now/table/" + url.PathEscape(r.Table)
	if r.SysID != "" {
		path += "/" + url.PathEscape(r.SysID)
		op += "/" + r.SysID
	}
	query := url.Values{"sysparm_input_display_value": {"false"}, "sysparm_exclude_reference_link": {"true"}, "sysparm_fields": {"sys_id"}}
	if r.Method == http.MethodDelete {
		query = nil
	}
	a, err := c.do(ctx, op, r.Method, path, query, r.Body)
	if err != nil {
		return Written{}, err
	}
	defer a.close()
	if a.StatusCode < 200 || a.StatusCode > 299 {
		return Written{}, c.refused(op, a)
	}
	w := Written{Status: a.StatusCode, SysID: r.SysID, RequestID: a.requestID}
	want := map[string]int{http.MethodPost: 201, http.MethodPatch: 200, http.MethodPut: 200, http.MethodDelete: 204}[r.Method]
	body, err := io.ReadAll(a.body)
	if a.StatusCode == want && err == nil {
		if r.Method == http.MethodDelete {
			return w, nil
		}
		if id := resultID(body); isJSON(a.Header.Get("Content-Type")) && id != "" && (r.SysID == "" || strings.EqualFold(id, r.SysID)) {
			w.SysID = id
			return w, nil
		}
	}
	e := &failure.Error{
		Class: failure.Ambiguous, Op: op, Status: a.StatusCode, RequestID: a.requestID,
		Detail: "the answer does not say what became of the write: " + c.redact.Text(failure.Excerpt(body)),
	}
	if err != nil {
		e.Detail = "the answer cannot be read: " + c.cause(ctx, err)
	} else if refused := failure.Classify(op, failure.Answer{
		Status: a.StatusCode, ContentType: a.Header.Get("Content-Type"), Body: body, Excerpt: e.Detail,
	}, a.received); refused.Class == failure.Transient {
		// A login, maintenance or hibernation page came instead of the instance: nothing was written.
		refused.RequestID = a.requestID
		return Written{}, refused
	}
	return Written{}, e
}

// resultID returns the sys_id of {"result":{"sys_id":...}}, "" if there is none or the answer holds an error.
func resultID(body []byte) string {
	var in struct {
		Result struct {
			SysID json.RawMessage `json:"sys_id"`
		} `json:"result"`
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(body, &in) != nil || len(in.Error) > 0 {
		return ""
	}
	return string(plain(in.Result.SysID))
}
