package fakesnow

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strconv"
	"sync"
	"syscall"
)

// pipe is the in-process RoundTripper.
type pipe struct{ in *Instance }

// Transport returns a RoundTripper that asks the instance directly, without sockets or goroutines, so
// that it works inside a testing/synctest bubble. Faults appear as the errors that net/http gives:
// *net.OpError with ECONNREFUSED or ECONNRESET, io.ErrUnexpectedEOF, the context's error. It calls the
// WroteHeaders, WroteRequest and GotFirstResponseByte hooks of net/http/httptrace. Answers are
// compressed only when the request itself asks for gzip; nothing is inflated on the way.
func (in *Instance) Transport() http.RoundTripper { return pipe{in} }

func (p pipe) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if req.Body != nil {
		defer func() { _ = req.Body.Close() }()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	trace := httptrace.ContextClientTrace(ctx)
	wrote := func(err error) {
		if trace != nil && trace.WroteRequest != nil {
			trace.WroteRequest(httptrace.WroteRequestInfo{Err: err})
		}
	}
	own := req.Clone(ctx)
	own.Host = orText(req.Host, req.URL.Host)
	own.RequestURI = req.URL.RequestURI()
	var bodyErr error
	rep := p.in.serve(own, func() ([]byte, error) {
		if trace != nil && trace.WroteHeaders != nil {
			trace.WroteHeaders()
		}
		if req.Body == nil {
			wrote(nil)
			return nil, nil
		}
		b, err := readAll(req.Body)
		var tooLarge *http.MaxBytesError
		if err != nil && !errors.As(err, &tooLarge) {
			bodyErr = err
		}
		wrote(bodyErr)
		return b, err
	}, true)
	fail := func(err error) (*http.Response, error) {
		rep.done()
		return nil, err
	}
	if bodyErr != nil {
		return fail(bodyErr)
	}
	switch rep.end {
	case refused:
		return fail(opError("dial", "connect", syscall.ECONNREFUSED))
	case resetEarly:
		err := opError("write", "write", syscall.ECONNRESET)
		wrote(err)
		return fail(err)
	}
	if err := pauseFor(ctx, rep.wait); err != nil {
		return fail(err)
	}
	switch rep.end {
	case stalled:
		<-ctx.Done()
		return fail(ctx.Err())
	case resetLate:
		return fail(opError("read", "read", syscall.ECONNRESET))
	}
	if trace != nil && trace.GotFirstResponseByte != nil {
		trace.GotFirstResponseByte()
	}
	return p.response(req, rep), nil
}

func opError(op, call string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Err: os.NewSyscallError(call, err)}
}

func (p pipe) response(req *http.Request, rep *reply) *http.Response {
	size := int64(rep.size())
	rep.header.Set("Content-Length", strconv.FormatInt(size, 10))
	if rep.status == http.StatusNoContent {
		rep.header.Del("Content-Length")
	}
	resp := &http.Response{
		Status: strconv.Itoa(rep.status) + " " + http.StatusText(rep.status), StatusCode: rep.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: rep.header, ContentLength: size, Request: req,
	}
	body := &pipeBody{ctx: req.Context(), rep: rep, left: int(size)}
	if rep.end == resetInBody || rep.end == stalledBody {
		body.left = min(rep.cut, int(size))
	}
	for _, part := range rep.parts {
		body.parts = append(body.parts, bytes.NewReader(part))
	}
	resp.Body = body
	if size == 0 || req.Method == http.MethodHead {
		rep.done()
		resp.Body = http.NoBody
	}
	return resp
}

// pipeBody is a response body that may break off.
type pipeBody struct {
	ctx   context.Context //nolint:containedctx // the body lives as long as its request
	rep   *reply
	parts []*bytes.Reader
	left  int
	due   int // of the present drip
	once  sync.Once
	mu    sync.Mutex
	shut  bool
}

func (b *pipeBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	shut := b.shut
	b.mu.Unlock()
	if shut {
		return 0, http.ErrBodyReadAfterClose
	}
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	if len(p) == 0 {
		return 0, nil
	}
	if b.left == 0 {
		switch b.rep.end {
		case resetInBody:
			return 0, opError("read", "read", syscall.ECONNRESET)
		case stalledBody:
			<-b.ctx.Done()
			return 0, b.ctx.Err()
		}
		b.end()
		return 0, io.EOF
	}
	n := min(len(p), b.left)
	if b.rep.end == dripping {
		if b.due == 0 {
			if err := pauseFor(b.ctx, b.rep.pause); err != nil {
				return 0, err
			}
			b.due = b.rep.chunk
		}
		n = min(n, b.due)
		b.due -= n
	}
	got := 0
	for got < n && len(b.parts) > 0 {
		k, _ := b.parts[0].Read(p[got:n])
		got += k
		if b.parts[0].Len() == 0 {
			b.parts = b.parts[1:]
		}
	}
	b.due += n - got
	b.left -= got
	return got, nil
}

func (b *pipeBody) Close() error {
	b.mu.Lock()
	b.shut = true
	b.mu.Unlock()
	b.end()
	return nil
}

func (b *pipeBody) end() { b.once.Do(b.rep.done) }
