// Package servicenow is the HTTP side: transport, authentication and the Table
// API; bytes in, rows out, every failure classified. It sends each request once:
// retries belong to the actors.
package servicenow

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"snowmelt/core/failure"
)

// Config says how an instance is reached.
type Config struct {
	// URL is the instance's address; only scheme, host and port count.
	URL *url.URL
	// Username and Password are sent as Basic credentials, only to URL's host.
	Username, Password string
	UserAgent          string
	// ConnectTimeout bounds the TCP connect, HeaderTimeout the wait for the answer's
	// headers, BodyIdle a body without progress.
	ConnectTimeout, HeaderTimeout, BodyIdle time.Duration
	// MaxBody is the largest body after inflation, in bytes.
	MaxBody int64
	// Connections is the number of idle connections kept.
	Connections int
	// RoundTripper replaces the transport, for tests and embedding.
	RoundTripper http.RoundTripper
}

// Client talks to one instance. It is safe for concurrent use.
type Client struct {
	cfg    Config
	http   *http.Client
	redact *failure.Redactor
}

// New returns a client for cfg. It refuses credentials over plain HTTP to
// anything but the loopback interface unless allowPlaintext is set (Invariant 8).
func New(cfg Config, allowPlaintext bool) (*Client, error) {
	if cfg.URL.Scheme == "http" && !allowPlaintext && !isLoopback(cfg.URL.Hostname()) {
		return nil, &failure.Error{
			Class: failure.Misconfigured, Op: "connecting to " + cfg.URL.Host,
			Detail: "credentials would travel in the clear", Hint: "use https, or set snow.http.allow.plaintext",
		}
	}
	rt := cfg.RoundTripper
	if rt == nil {
		rt = newTransport(cfg)
	}
	return &Client{
		cfg: cfg,
		http: &http.Client{
			Transport:     rt,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		redact: failure.NewRedactor(cfg.Password),
	}, nil
}

func newTransport(cfg Config) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: cfg.ConnectTimeout, KeepAlive: 30 * time.Second}).DialContext
	t.MaxIdleConns = 0
	t.MaxIdleConnsPerHost = max(2, cfg.Connections)
	t.DisableCompression = true // gzip is asked for and inflated here, by a faster reader
	t.TLSHandshakeTimeout = cfg.ConnectTimeout
	t.ReadBufferSize = 64 << 10
	return t
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Host returns the lower-cased host that names the instance in cursors.
func (c *Client) Host() string { return strings.ToLower(c.cfg.URL.Host) }

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Causes with which a request is ended from inside.
var (
	errHeaderTimeout = errors.New("no answer within snow.http.request.timeout.ms")
	errBodyIdle      = errors.New("the body made no progress within snow.http.body.idle.timeout.ms")
	errTooLarge      = errors.New("the body is larger than snow.http.max.response.bytes")
)

// answer is a response whose body is being read.
type answer struct {
	*http.Response
	body      *body
	requestID string
	received  time.Time
	cancel    context.CancelCauseFunc
}

// close ends the request; a body not read to its end costs the connection.
func (a *answer) close() {
	a.body.idle.Stop()
	_ = a.body.raw.Close()
	a.cancel(nil)
}

// body counts, bounds and watches what is read.
type body struct {
	io.Reader               // inflated
	raw       io.ReadCloser // as it arrives
	idle      *time.Timer
	wait      time.Duration
	read, max int64
}

// progress restarts the idle timer with every piece that arrives.
type progress struct {
	io.Reader
	b *body
}

func (p progress) Read(buf []byte) (int, error) {
	n, err := p.Reader.Read(buf)
	if n > 0 {
		p.b.idle.Reset(p.b.wait)
	}
	return n, err
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.read += int64(n); b.read > b.max {
		return 0, errTooLarge
	}
	return n, err
}

// do sends one request and returns its answer, whatever its status, or a
// classified failure. now is the local clock.
func (c *Client) do(ctx context.Context, op, method, path string, query url.Values, send []byte) (*answer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	wrote := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(info httptrace.WroteRequestInfo) { wrote = info.Err == nil },
	})
	u := *c.cfg.URL
	u.Path, u.RawQuery = path, query.Encode()
	var content io.Reader
	if send != nil {
		content = bytes.NewReader(send)
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), content)
	if err != nil {
		cancel(nil)
		return nil, fmt.Errorf("building a request for %s: %w", path, err)
	}
	id := requestID()
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Accept-Encoding", "gzip")
	if send != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("User-Agent", c.cfg.UserAgent)
	req.Header.Set("X-Request-Id", id)
	if c.cfg.Username != "" {
		req.SetBasicAuth(c.cfg.Username, c.cfg.Password)
	}
	timer := time.AfterFunc(c.cfg.HeaderTimeout, func() { cancel(errHeaderTimeout) })
	resp, err := c.http.Do(req) //nolint:bodyclose // answer.close does
	timer.Stop()
	if err != nil {
		e := c.broken(ctx, op, id, err, wrote)
		cancel(nil)
		return nil, e
	}
	a := &answer{Response: resp, requestID: id, received: time.Now(), cancel: cancel}
	a.body = &body{raw: resp.Body, wait: c.cfg.BodyIdle, max: c.cfg.MaxBody}
	a.body.idle = time.AfterFunc(c.cfg.BodyIdle, func() { cancel(errBodyIdle) })
	a.body.Reader = progress{resp.Body, a.body}
	if strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") {
		z, err := gzip.NewReader(a.body.Reader)
		if err != nil && !errors.Is(err, io.EOF) {
			e := c.unreadable(ctx, op, a, err)
			a.close()
			return nil, e
		}
		if err == nil {
			a.body.Reader = z
		}
	}
	return a, nil
}

// broken classifies a transport failure: nothing came back.
func (c *Client) broken(ctx context.Context, op, id string, err error, wrote bool) *failure.Error {
	e := &failure.Error{Class: failure.Transient, Op: op, RequestID: id, Detail: c.cause(ctx, err)}
	if wrote {
		e.Class = failure.Ambiguous
	}
	if errors.Is(context.Cause(ctx), errHeaderTimeout) {
		e.Shrink, e.Hint = true, "the instance is slow or hangs"
	} else if !wrote {
		e.Hint = "check that " + c.cfg.URL.Host + " can be reached from here"
	}
	return e
}

// unreadable classifies a body that cannot be read to its end, or makes no sense.
func (c *Client) unreadable(ctx context.Context, op string, a *answer, err error) *failure.Error {
	e := &failure.Error{
		Class: failure.Transient, Op: op, Status: a.StatusCode, RequestID: a.requestID,
		Detail: "unreadable body: " + c.cause(ctx, err), Shrink: true,
	}
	if errors.Is(err, errTooLarge) {
		e.Class, e.Detail = failure.TooLarge, fmt.Sprintf("%v (%d)", errTooLarge, c.cfg.MaxBody)
	}
	return e
}

// cause is the reason of a failed exchange, without the URL that net/http puts before it.
func (c *Client) cause(ctx context.Context, err error) string {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	return c.redact.Text(err.Error())
}

// refused reads what a failing answer says and classifies it.
func (c *Client) refused(op string, a *answer) *failure.Error {
	text, _ := io.ReadAll(io.LimitReader(a.body, 64<<10))
	e := failure.Classify(op, failure.Answer{
		Status: a.StatusCode, ContentType: a.Header.Get("Content-Type"), RetryAfter: a.Header.Get("Retry-After"),
		Location: a.Header.Get("Location"), MFA: strings.EqualFold(a.Header.Get("X-MFA_TOKEN"), "invalid"),
		Body: text, Excerpt: c.redact.Text(failure.Excerpt(text)),
	}, a.received)
	e.RequestID = a.requestID
	e.Detail = c.redact.Text(e.Detail)
	return e
}

// isJSON says whether an answer calls itself JSON.
func isJSON(contentType string) bool {
	t, _, _ := strings.Cut(contentType, ";")
	t = strings.ToLower(strings.TrimSpace(t))
	return t == "application/json" || t == "text/json" || strings.HasSuffix(t, "+json")
}

func requestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
