package failure

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// Answer is what classification needs to know of an instance's answer.
type Answer struct {
	Status int
	// ContentType, RetryAfter and Location are headers as they came.
	ContentType, RetryAfter, Location string
	// MFA says that X-MFA_TOKEN demanded a second factor.
	MFA bool
	// Body is the body, or as much of its beginning and end as was kept.
	Body []byte
	// Excerpt is the part of Body that may be shown, cut and redacted.
	Excerpt string
}

// rule is one row of the classification table: the first that fits decides.
type rule struct {
	from, to int    // statuses, inclusive; 0, 0 = any
	text     string // lower-case text in the body; "" = any
	html     bool   // only HTML answers
	class    Class
	shrink   bool
	hint     string
	wide     bool // concerns the table, not one record
}

// rules is the table of failures.md section 1 with the texts of table-api.md.
var rules = []rule{
	{0, 0, "maximum execution time", false, TooLarge, true, "the instance's quota; the page is made smaller", false},
	{0, 0, "unique key violation", false, Conflict, false, "another row holds this value", false},
	{0, 0, "hibernat", true, Transient, false, "the instance is hibernating; wake it in the developer portal", false},
	{401, 401, "", false, Auth, false, "check user and password of snow.auth.*", false},
	{407, 407, "", false, Misconfigured, false, "the proxy wants credentials: snow.http.proxy.username and .password", false},
	{429, 429, "", false, RateLimited, false, "a rate limit rule of the instance", false},
	{403, 403, "insufficient rights to query", false, Permission, false, "a field of the query, perhaps the cursor field, may not be read by this user", true},
	{403, 403, "failed api level acl", false, Permission, false, "the integration user may not use this table through the API", true},
	{403, 403, "", false, Permission, false, "the integration user lacks a role, an ACL or a domain", false},
	{400, 404, "invalid table", false, NotFound, false, "the instance has no such table", true},
	{400, 404, "does not represent any resource", false, Misconfigured, false, "check snow.url and the table's name", true},
	{404, 404, "", false, NotFound, false, "no such table or row, or an ACL hides it", false},
	{409, 409, "try again", false, Transient, false, "", false},
	{409, 409, "", false, Conflict, false, "", false},
	{414, 414, "", false, Permanent, false, "the query is too long for the instance or a proxy: shorten it", false},
	{408, 408, "", false, Transient, true, "", false},
	{425, 425, "", false, Transient, false, "", false},
	{500, 500, "", false, Transient, false, "", false},
	{502, 503, "", false, Transient, false, "", false},
	{504, 504, "", false, Transient, true, "", false},
	{400, 400, "", false, RecordError, false, "the instance refuses the query or the fields", false},
	{422, 422, "", false, RecordError, false, "", false},
	{300, 399, "login", false, Auth, false, "redirected to a login page: check snow.url and snow.auth.*", false},
	{300, 399, "", false, Permanent, false, "redirects are not followed: set snow.url to the final address", false},
	{200, 299, "maintenance", true, Transient, false, "the instance is under maintenance", false},
	{200, 299, "login", true, Transient, false, "a login page instead of data; single sign-on or a proxy may stand in between", false},
	{200, 299, "", true, Permanent, false, "HTML instead of JSON: check snow.url and proxies", false},
	{200, 299, "insufficient rights", false, Permission, false, "", false},
	{200, 299, "security constraints", false, Permission, false, "", false},
	{200, 299, "acl exception", false, Permission, false, "an access rule of the instance", false},
}

// Classify says what kind of failure an answer is that is no success: the caller
// has already found that its status is not 2xx, its content type is not JSON, or
// its body holds an error object. op is what was asked, in the gerund.
func Classify(op string, a Answer, now time.Time) *Error {
	e := &Error{Class: Permanent, Op: op, Status: a.Status, Detail: a.Excerpt}
	if text := errorText(a.Body); text != "" {
		e.Detail = text
	}
	if a.MFA {
		e.Class, e.Hint = Auth, "the instance demands multi-factor authentication for this user; exempt the integration user"
		return e
	}
	body := strings.ToLower(string(a.Body)) + strings.ToLower(a.Location)
	html := IsHTML(a.ContentType, a.Body)
	for _, r := range rules {
		if r.from != 0 && (a.Status < r.from || a.Status > r.to) || r.html && !html || !strings.Contains(body, r.text) {
			continue
		}
		e.Class, e.Shrink, e.Hint, e.TableWide = r.class, r.shrink, r.hint, r.wide
		break
	}
	if a.Status == 429 || a.Status == 503 {
		e.RetryAfter = ParseRetryAfter(a.RetryAfter, now)
	}
	return e
}

// IsHTML tells an HTML page from data by its type or its first bytes.
func IsHTML(contentType string, body []byte) bool {
	head := bytes.ToLower(bytes.TrimSpace(body[:min(len(body), 256)]))
	return strings.Contains(strings.ToLower(contentType), "html") ||
		bytes.HasPrefix(head, []byte("<!doctype html")) || bytes.HasPrefix(head, []byte("<html"))
}

// errorText returns message and detail of the instance's error object, or "".
func errorText(body []byte) string {
	var envelope struct {
		Error any    `json:"error"`
		Desc  string `json:"error_description"`
	}
	if json.Unmarshal(body, &envelope) != nil {
		return ""
	}
	text := envelope.Desc
	switch v := envelope.Error.(type) {
	case string:
		text = strings.TrimSuffix(v+": "+text, ": ")
	case map[string]any:
		message, _ := v["message"].(string)
		detail, _ := v["detail"].(string)
		text = strings.Trim(message+": "+detail, ": ")
	}
	return Excerpt([]byte(text))
}

// maxRetryAfter bounds what an instance may ask for: its limits are per hour.
const maxRetryAfter = time.Hour

// ParseRetryAfter reads a Retry-After header, seconds or an HTTP date (RFC 9110
// section 10.2.3), as a duration of at most an hour; 0 when there is none.
func ParseRetryAfter(s string, now time.Time) time.Duration {
	s = strings.TrimSpace(s)
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return max(0, min(time.Duration(min(n, 3600))*time.Second, maxRetryAfter))
	}
	if t, err := time.Parse(time.RFC1123, s); err == nil {
		return max(0, min(t.Sub(now), maxRetryAfter))
	}
	return 0
}
