package servicenow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"snowmelt/core/failure"
	"snowmelt/core/record"
)

// Fields names the fields of a row that a poller needs.
type Fields struct {
	ID, Timestamp, ModCount string
}

// ListRequest is one page of the Table API.
type ListRequest struct {
	Table string
	// Query is a complete encoded query with its order.
	Query string
	Limit int
	// Fields is the projection, nil for all.
	Fields []string
	// DisplayValue is false, true or all; "" is false.
	DisplayValue string
	// KeepReferenceLink keeps the link of reference fields.
	KeepReferenceLink bool
	// Count asks for X-Total-Count.
	Count bool
	// NoDomain sends sysparm_query_no_domain, Category sysparm_query_category.
	NoDomain bool
	Category string
}

func (r ListRequest) values() url.Values {
	v := url.Values{
		"sysparm_query":                      {r.Query},
		"sysparm_limit":                      {strconv.Itoa(r.Limit)},
		"sysparm_suppress_pagination_header": {"true"},
		"sysparm_exclude_reference_link":     {strconv.FormatBool(!r.KeepReferenceLink)},
		"sysparm_no_count":                   {strconv.FormatBool(!r.Count)},
	}
	if len(r.Fields) > 0 {
		v.Set("sysparm_fields", strings.Join(r.Fields, ","))
	}
	if r.DisplayValue != "" {
		v.Set("sysparm_display_value", r.DisplayValue)
	}
	if r.NoDomain {
		v.Set("sysparm_query_no_domain", "true")
	}
	if r.Category != "" {
		v.Set("sysparm_query_category", r.Category)
	}
	return v
}

// maxURL bounds a request line: servers and proxies refuse longer ones with 414.
const maxURL = 16 << 10

// Page is a page of rows. Its rows' bytes live in pooled buffers: nothing of
// them may be used after Release.
type Page struct {
	Rows []record.Row
	// Total is X-Total-Count, -1 when the answer had none.
	Total int
	// Date is the Date header, Received when the headers arrived by the local clock.
	Date, Received time.Time
	// Bytes is the size of the body after inflation.
	Bytes int64
	// RequestID is the X-Request-Id that was sent.
	RequestID string

	chunks [][]byte
}

// Release gives the page's buffers back. It may be called once.
func (p *Page) Release() {
	for _, c := range p.chunks {
		putChunk(c)
	}
	p.Rows, p.chunks = nil, nil
}

// List reads one page as it arrives. Every row of the page it returns is a
// complete, valid JSON object and the page was read to its end: an answer that
// is anything else is an error, and nothing of it is returned (source.md rule 8).
func (c *Client) List(ctx context.Context, r ListRequest, f Fields) (*Page, error) {
	op := "reading a page of " + r.Table
	path, query := "/api/now/table/"+url.PathEscape(r.Table), r.values()
	if n := len(query.Encode()) + len(path); n > maxURL {
		return nil, &failure.Error{
			Class: failure.Misconfigured, Op: op, Detail: "the request line would have " + strconv.Itoa(n) + " bytes, the limit is " + strconv.Itoa(maxURL),
			Hint: "shorten the base query or the list of fields",
		}
	}
	a, err := c.do(ctx, op, http.MethodGet, path, query, nil)
	if err != nil {
		return nil, err
	}
	defer a.close()
	if a.StatusCode != http.StatusOK || !isJSON(a.Header.Get("Content-Type")) {
		return nil, c.refused(op, a)
	}
	s := scanner{src: a.body, fields: f}
	err = s.page()
	p := &Page{Rows: s.rows, Total: -1, Received: a.received, Bytes: a.body.read, RequestID: a.requestID, chunks: s.chunks}
	if err == nil && s.failed == nil && s.found {
		if n, e := strconv.Atoi(a.Header.Get("X-Total-Count")); e == nil && n >= 0 {
			p.Total = n
		}
		p.Date, _ = http.ParseTime(a.Header.Get("Date"))
		return p, nil
	}
	if err == nil && s.failed == nil {
		err = fmt.Errorf("%w: no result array", errSyntax) // null, or an object of another kind
	}
	tail := s.tail()
	defer p.Release()
	if err == nil || isSyntax(err) {
		// What the instance says in the body decides, even behind broken JSON.
		if s.failed != nil {
			tail = append([]byte(`{"error":`), append(s.failed, '}')...)
		}
		e := failure.Classify(op, failure.Answer{
			Status: a.StatusCode, ContentType: a.Header.Get("Content-Type"), Body: tail, Excerpt: c.redact.Text(failure.Excerpt(tail)),
		}, a.received)
		if s.failed != nil || e.Class == failure.TooLarge {
			e.RequestID = a.requestID
			return nil, e
		}
	}
	return nil, c.unreadable(ctx, op, a, err)
}

func isSyntax(err error) bool {
	return errors.Is(err, errSyntax) || errors.Is(err, io.ErrUnexpectedEOF)
}
