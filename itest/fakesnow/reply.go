package fakesnow

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// ending is how the transport of an answer goes wrong.
type ending int

const (
	completed   ending = iota
	refused            // no connection
	resetEarly         // reset before the request was read
	resetLate          // reset instead of an answer
	stalled            // no answer until the client leaves
	resetInBody        // reset after cut bytes of the body
	stalledBody        // nothing more after cut bytes of the body
	dripping           // chunk bytes at a time
)

// reply is an answer decided, not yet written.
type reply struct {
	status int
	header http.Header
	parts  [][]byte
	rows   int
	wait   time.Duration // before the headers
	end    ending
	cut    int
	chunk  int
	pause  time.Duration
	done   func() // the request has left
}

func newReply(status int) *reply {
	return &reply{status: status, header: http.Header{}}
}

func (r *reply) size() (n int) {
	for _, p := range r.parts {
		n += len(p)
	}
	return n
}

func (r *reply) body() []byte {
	b := make([]byte, 0, r.size())
	for _, p := range r.parts {
		b = append(b, p...)
	}
	return b
}

func (r *reply) set(body []byte, contentType string) *reply {
	r.parts = [][]byte{body}
	r.header.Set("Content-Type", contentType)
	return r
}

const (
	jsonType = "application/json;charset=UTF-8"
	htmlType = "text/html;charset=UTF-8"
)

func jsonReply(status int, v any) *reply {
	body, err := json.Marshal(v)
	if err != nil {
		return errorReply(http.StatusInternalServerError, err.Error(), "")
	}
	return newReply(status).set(body, jsonType)
}

// errorReply is the instance's error envelope; an empty detail is null.
func errorReply(status int, message, detail string) *reply {
	b := append([]byte(`{"error":{"message":`), appendJSON(nil, message)...)
	b = append(b, `,"detail":`...)
	if detail == "" {
		b = append(b, "null"...)
	} else {
		b = appendJSON(b, detail)
	}
	return newReply(status).set(append(b, `},"status":"failure"}`...), jsonType)
}

func htmlReply(status int, titleText string) *reply {
	return newReply(status).set([]byte("<html><head><title>"+titleText+"</title></head><body>"+titleText+"</body></html>"), htmlType)
}

func unauthorized() *reply {
	r := errorReply(http.StatusUnauthorized, "User Not Authenticated", "Required to provide Auth information")
	r.header.Set("WWW-Authenticate", `Basic realm="Service-now"`)
	return r
}

func noRecord() *reply {
	return errorReply(http.StatusNotFound, "No Record found", "Record doesn't exist or ACL restricts the record retrieval")
}

func invalidTable(name string) *reply {
	return errorReply(http.StatusBadRequest, "Invalid table "+name, "Table "+name+" does not exist")
}

func noResource() *reply {
	return errorReply(http.StatusBadRequest, "Requested URI does not represent any resource", "")
}

const (
	cancelled       = "Transaction cancelled: maximum execution time exceeded"
	cancelledDetail = cancelled + " Check logs for error trace or enable glide.rest.debug property to verify REST request processing"
	failedOperation = "Operation Failed"
	queryRights     = "Insufficient rights to query records"
)

// statusReply is the body that goes with a status fault.
func (in *Instance) statusReply(p FaultParams, table string) *reply {
	var r *reply
	failed := func(detail string) *reply { return errorReply(p.Status, failedOperation, detail) }
	switch {
	case p.Variant == "html":
		r = htmlReply(p.Status, http.StatusText(p.Status))
	case p.Variant == "max_execution":
		r = errorReply(p.Status, cancelled, cancelledDetail)
	case p.Status == http.StatusUnauthorized:
		r = unauthorized()
		if p.Variant == "mfa" {
			r.header.Set("X-MFA_TOKEN", "invalid")
		}
	case p.Status == http.StatusForbidden:
		switch p.Variant {
		case "data_policy":
			r = failed("Data Policy Exception: The following fields are mandatory: Short description")
		case "acl_insert":
			r = failed("ACL Exception Insert Failed due to security constraints")
		case "acl_update":
			r = failed("ACL Exception Update Failed due to security constraints")
		case "acl_delete":
			r = failed("ACL Exception Delete Failed due to security constraints")
		case "api_acl":
			r = errorReply(p.Status, "Failed API level ACL Validation", "")
		case "query":
			r = errorReply(p.Status, queryRights, "Field(s) present in the query do not have permission to be read")
		case "unique_key":
			r = failed("Unique Key violation detected by database")
		default:
			r = failed("Operation against file '" + table + "' was aborted by Business Rule 'Example rule^0123456789abcdef0123456789abcdef'. Business Rule Stack:Example rule")
		}
	case p.Status == http.StatusNotFound:
		r = noRecord()
	case p.Status == http.StatusConflict && p.Variant == "transient":
		r = errorReply(p.Status, failedOperation, "Record is locked by another transaction, please retry")
	case p.Status == http.StatusBadRequest && p.Variant == "invalid_table":
		r = invalidTable(table)
	case p.Status == http.StatusTooManyRequests:
		r = errorReply(p.Status, "Rate limit exceeded", "Rate limit of 100 requests per hour for Table API exceeded")
	case p.Status == http.StatusRequestURITooLong, p.Status == http.StatusBadGateway, p.Status == http.StatusServiceUnavailable, p.Status == http.StatusGatewayTimeout:
		r = htmlReply(p.Status, strconv.Itoa(p.Status)+" "+http.StatusText(p.Status))
	default:
		text := http.StatusText(p.Status)
		if text == "" {
			text = "Status " + strconv.Itoa(p.Status)
		}
		r = errorReply(p.Status, text, "")
	}
	if p.Body != "" {
		r.parts = [][]byte{[]byte(p.Body)}
	}
	if p.ContentType != "" {
		r.header.Set("Content-Type", p.ContentType)
	}
	in.retryAfter(r, p.RetryAfter)
	return r
}

func (in *Instance) retryAfter(r *reply, value string) {
	if value == "" {
		return
	}
	if len(value) > 5 && value[:5] == "date:" {
		n, _ := strconv.Atoi(value[5:])
		value = in.Now().Add(time.Duration(n) * time.Second).Format(http.TimeFormat)
	}
	r.header.Set("Retry-After", value)
}

// pauseFor waits for d or the end of ctx.
func pauseFor(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
