package fakesnow

import (
	"bytes"
	"net/http"
	"strconv"
	"time"
)

// spoil answers a request under the faults that hit it. Faults on rows (duplicates, order, extra
// rows) act inside the list.
func (in *Instance) spoil(r *request, answer func() *reply) *reply {
	var wait time.Duration
	var main *hit
	limits := http.Header{}
	for i, h := range r.hits {
		switch h.Kind {
		case FaultLatency:
			wait += h.latency()
		case FaultRateLimit:
			limits.Set("X-RateLimit-Limit", itoa(h.Params.Limit))
			limits.Set("X-RateLimit-Reset", strconv.FormatInt(h.reset.Unix(), 10))
			limits.Set("X-RateLimit-Rule", hashID("rate limit", h.Table))
			if h.over {
				main = &r.hits[i]
			}
		case FaultDuplicateRows, FaultReorderRows, FaultExtraRows, FaultTouchRows:
		default:
			main = &r.hits[i]
		}
	}
	var rep *reply
	if main == nil {
		rep = answer()
	} else {
		rep = in.spoilWith(r, *main, answer)
	}
	if rep.header != nil {
		for k, v := range limits {
			rep.header[k] = v
		}
	}
	rep.wait = wait
	return rep
}

func (in *Instance) spoilWith(r *request, h hit, answer func() *reply) *reply {
	p := h.Params
	cutAt := func(rep *reply) int {
		n := rep.size()
		if p.AtByte > 0 {
			return min(p.AtByte, max(0, n-1))
		}
		return n / 2
	}
	switch h.Kind {
	case FaultStatus, FaultMaxExecution, FaultHTML200, FaultNullResult, FaultErrorIn200:
		if p.Applied {
			rep := answer()
			answer = func() *reply { return rep }
		}
	}
	switch h.Kind {
	case FaultStatus:
		return in.statusReply(p, r.table)
	case FaultRateLimit:
		left := max(1, int(h.reset.Sub(in.Now())/time.Second))
		rep := errorReply(http.StatusTooManyRequests, "Rate limit exceeded", "Rate limit of "+itoa(p.Limit)+" requests per hour for Table API exceeded")
		rep.header.Set("Retry-After", itoa(left))
		return rep
	case FaultResetAfter:
		return &reply{end: resetLate}
	case FaultAppliedNoAnswer:
		answer()
		return &reply{end: resetLate}
	case FaultLateApply:
		time.AfterFunc(time.Duration(p.MS)*time.Millisecond, func() { answer() })
		return &reply{end: stalled}
	case FaultStallHeaders:
		return &reply{end: stalled}
	case FaultHTML200:
		return htmlPage(p.Variant)
	case FaultNullResult:
		return newReply(http.StatusOK).set([]byte(`{"result":null}`), jsonType)
	case FaultMaxExecution:
		if p.Variant != "body" {
			return errorReply(http.StatusInternalServerError, cancelled, cancelledDetail)
		}
		body := unzipped(r, answer)
		cut := bytes.LastIndex(body.parts[0], []byte(`},{`))
		if cut < 0 {
			cut = len(`{"result":[`) - 1
		}
		broken := append([]byte(nil), body.parts[0][:min(cut+1, len(body.parts[0]))]...)
		broken = append(broken, `,"],"error":{"detail":"`+cancelled+`. Check logs for error trace.","message":"`+cancelled+`"},"status":"failure"}`...)
		body.parts = [][]byte{broken}
		return body
	case FaultErrorIn200:
		rep := newReply(http.StatusOK).set(nil, jsonType)
		if p.Variant != "only" {
			rep = unzipped(r, answer)
		}
		failure := `"error":{"message":"` + cancelled + `","detail":"` + cancelledDetail + `"},"status":"failure"}`
		if p.Body != "" {
			failure = `"error":` + p.Body + `,"status":"failure"}`
		}
		rep.status = http.StatusOK
		if b := rep.parts[0]; p.Variant != "only" && len(b) > 1 && b[len(b)-1] == '}' {
			rep.parts = [][]byte{append(b[:len(b)-1:len(b)-1], ","+failure...)}
		} else {
			rep.parts = [][]byte{[]byte("{" + failure)}
		}
		return rep
	case FaultTruncated:
		rep := unzipped(r, answer)
		rep.parts = [][]byte{rep.parts[0][:cutAt(rep)]}
		return rep
	case FaultMalformed:
		rep := unzipped(r, answer)
		if b := rep.parts[0]; len(b) > 2 {
			b = append([]byte(nil), b...)
			at := bytes.IndexByte(b, ':')
			b[max(at, 0)] = ';'
			rep.parts = [][]byte{b}
		}
		return rep
	}
	rep := answer()
	switch h.Kind {
	case FaultWrongContentType:
		rep.header.Set("Content-Type", orText(p.ContentType, "text/plain"))
	case FaultBadGzip:
		if rep.header.Get("Content-Encoding") == "" {
			rep.parts = zip(rep.body())
			rep.header.Set("Content-Encoding", "gzip")
		}
		last := append([]byte(nil), rep.parts[len(rep.parts)-1]...)
		last[len(last)-8] ^= 0xff
		rep.parts = append(append([][]byte(nil), rep.parts[:len(rep.parts)-1]...), last)
	case FaultResetBody, FaultStallBody, FaultSlowDrip:
		// decide on the bytes that really go out
		in.decorate(r, rep)
		rep.header.Del("Set-Cookie")
		switch h.Kind {
		case FaultResetBody:
			rep.end, rep.cut = resetInBody, cutAt(rep)
		case FaultStallBody:
			rep.end, rep.cut = stalledBody, cutAt(rep)
		default:
			rep.end, rep.chunk = dripping, p.ChunkBytes
			if rep.chunk <= 0 {
				rep.chunk = 1024
			}
			rep.pause = time.Duration(p.MS) * time.Millisecond
			if p.MS == 0 {
				rep.pause = 100 * time.Millisecond
			}
		}
	}
	return rep
}

// unzipped gets the answer as one plain part.
func unzipped(r *request, answer func() *reply) *reply {
	r.noGzip = true
	defer func() { r.noGzip = false }()
	rep := answer()
	rep.parts = [][]byte{rep.body()}
	return rep
}

func htmlPage(variant string) *reply {
	switch variant {
	case "login":
		return newReply(http.StatusOK).set([]byte(`<html><head><title>Log in | ServiceNow</title></head><body><form action="login.do" method="post"><input name="user_name"><input name="user_password" type="password"></form></body></html>`), htmlType)
	case "maintenance":
		return newReply(http.StatusOK).set([]byte(`<html><head><title>Maintenance</title></head><body>The instance is undergoing scheduled maintenance.</body></html>`), htmlType)
	}
	return newReply(http.StatusOK).set([]byte(`<html><head><title>Instance Hibernating page</title></head><body>Your instance is hibernating.</body></html>`), htmlType)
}

func orText(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
