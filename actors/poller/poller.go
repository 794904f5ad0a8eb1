// Package poller is the actor that owns one table: it asks Sweep what to read,
// reads it under a permit, publishes it, and tells Sweep what became of it. One
// request is in flight and one page is being published at most; one page is
// read ahead.
package poller

import (
	"context"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"snowmelt/actors/kit"
	"snowmelt/actors/msg"
	"snowmelt/core/cursor"
	"snowmelt/core/failure"
	"snowmelt/core/kafka"
	"snowmelt/core/limit"
	"snowmelt/core/record"
	"snowmelt/core/servicenow"
)

// Instance is the side that rows come from.
type Instance interface {
	List(context.Context, servicenow.ListRequest, servicenow.Fields) (*servicenow.Page, error)
}

// Publisher is the side that rows go to: a kafka.Publisher, or a test's.
type Publisher interface {
	Open(context.Context) (kafka.Opened, error)
	Publish(context.Context, kafka.Page) (kafka.Published, error)
	Scan(ctx context.Context, from, to map[int32]int64, fn func(kafka.Scanned) error) error
	Close(context.Context)
}

// Config is what a poller needs to know of its table.
type Config struct {
	Pipeline, Alias string
	Sweep           cursor.Settings
	// List is the request without query, limit and count.
	List   servicenow.ListRequest
	Fields servicenow.Fields
	Shape  record.Shape
	// Fingerprint is that of table, query and domain; Known are those of the pipeline's other aliases.
	Fingerprint string
	Known       []string
	// Probe asks for the checks at start beyond the instance's time.
	Probe bool
	// Count makes Probe ask for the number of rows.
	Count bool
	Retry failure.Retry
	// VerifiedEvery is how often an idle table's verified mark is written.
	VerifiedEvery time.Duration
	// EnsureTopic makes sure that the topic exists and keeps what is written to it;
	// oldest is the time of the oldest row to come.
	EnsureTopic func(ctx context.Context, oldest time.Time) error
	Instance    Instance
	Publisher   Publisher
	Limiter     msg.Ref[msg.Limiter]
	Parent      msg.Ref[msg.Source]
	Observer    msg.Observer
	Group       *kit.Group
	Log         *slog.Logger
	// Jitter returns a random number in [0, 1).
	Jitter func() float64
	Kept   *Kept
}

// Kept is what outlives a restart of the actor.
type Kept struct {
	gen   uint64
	limit int
}

type mode uint8

const (
	probing mode = iota
	claiming
	sweeping
	halted   // failed; the parent decides
	draining // finishing the page in hand
	closing
)

// queued is a draft that is to be published, with the page that holds its bytes.
type queued struct {
	draft cursor.Draft
	page  *servicenow.Page
}

type pollerActor struct {
	cfg  Config
	gen  uint64
	self kit.Ref[msg.Poller]
	id   string
	mode mode

	reader, writer *kit.Worker
	sweep          *cursor.Sweep
	oldest         cursor.Timestamp
	date, received time.Time
	tail           cursor.Tail
	next           map[int32]int64

	permit    uint64 // token of the permit asked for or held, 0 = none
	tokens    uint64
	asked     time.Time
	reading   bool // from asking for a permit to the page
	request   cursor.Request
	queue     []queued
	publish   bool // the first of queue is being published
	stopTimer func()

	attempt   int // failed attempts of the current request
	limited   int // 429s without Retry-After in a row
	first     time.Time
	recorded  time.Time // when the cursor record was last written
	progress  bool      // the parent knows that this incarnation works
	lastState msg.State
	phase     cursor.Phase // as it was logged
	failing   error        // why the actor halts once the page being published is settled
}

// Props returns how to make the actor; each restart makes a new one from cfg.
func Props(cfg Config, opts ...actor.PropsOption) *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor { return &pollerActor{cfg: cfg} }, opts...)
}

// Receive takes one message. It never blocks.
func (p *pollerActor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		p.start(ctx)
	case *actor.Stopping:
		p.abandon()
		p.closeDetached()
	case *actor.Restarting:
		p.abandon()
	case *msg.Granted:
		p.granted(m)
	case *msg.Tick:
		if m.Gen == p.gen && m.Token == p.tokens {
			p.stopTimer = nil
			p.goOn()
		}
	case *msg.Probed:
		if m.Gen == p.gen && p.mode == probing {
			p.probed(m)
		}
	case *msg.Claimed:
		if m.Gen == p.gen && p.mode == claiming {
			p.claimed(m)
		}
	case *msg.PageRead:
		p.pageRead(m)
	case *msg.PagePublished:
		if m.Gen == p.gen {
			p.published(m)
		}
	case *msg.PageFailed:
		if m.Gen == p.gen {
			p.pageFailed(m)
		}
	case *msg.Drain:
		p.drain()
	case *msg.Closed:
		if m.Gen == p.gen {
			ctx.Stop(ctx.Self())
		}
	}
}

func (p *pollerActor) start(ctx actor.Context) {
	p.cfg.Kept.gen++
	p.gen = p.cfg.Kept.gen
	p.self, p.id = kit.Self[msg.Poller](ctx), ctx.Self().GetId()
	p.reader, p.writer = kit.NewWorker(p.cfg.Group), kit.NewWorker(p.cfg.Group)
	p.tokens = p.gen << 32 // no token of an earlier incarnation comes again
	p.recorded = time.Now()
	p.state(msg.Starting, nil)
	p.acquire()
}

// goOn does the next thing after a wait.
func (p *pollerActor) goOn() {
	switch p.mode {
	case probing:
		p.acquire()
	case sweeping:
		p.readNext()
	case claiming, halted, draining, closing:
	}
}

// wait goes on after d.
func (p *pollerActor) wait(d time.Duration) {
	p.clearTimer()
	p.tokens++
	p.stopTimer = kit.Timer[msg.Poller](p.self, d, &msg.Tick{Gen: p.gen, Token: p.tokens})
}

func (p *pollerActor) clearTimer() {
	if p.stopTimer != nil {
		p.stopTimer()
		p.stopTimer = nil
		p.tokens++ // a tick that is already in the mailbox no longer counts
	}
}

func (p *pollerActor) acquire() {
	p.tokens++
	p.permit, p.asked, p.reading = p.tokens, time.Now(), true
	p.cfg.Limiter.Tell(&msg.Acquire{Client: p.id, Token: p.permit, Reply: grants{p.self}})
}

// grants narrows the inbox to what the limiter may tell.
type grants struct{ kit.Ref[msg.Poller] }

func (g grants) Tell(m *msg.Granted) { g.Ref.Tell(m) }

func (p *pollerActor) release(o limit.Outcome, retryAfter time.Duration) {
	if p.permit != 0 {
		p.cfg.Limiter.Tell(&msg.Release{Client: p.id, Token: p.permit, Outcome: o, RetryAfter: retryAfter})
		p.permit = 0
	}
}

func (p *pollerActor) granted(m *msg.Granted) {
	if m.Token != p.permit {
		p.cfg.Limiter.Tell(&msg.Release{Client: p.id, Token: m.Token, Outcome: limit.Neutral})
		return
	}
	if p.attempt > 0 { // waiting for a permit is no elapsed time
		p.first = p.first.Add(time.Since(p.asked))
	}
	switch p.mode {
	case probing:
		p.probe()
	case sweeping:
		p.read()
	case claiming, halted, draining, closing:
		p.reading = false
		p.release(limit.Neutral, 0)
	}
}

// halt stops working and leaves the decision to the parent. A page that is being
// published is finished first: its transaction is not the one that failed.
func (p *pollerActor) halt(err error) {
	if p.publish {
		p.clearTimer()
		p.release(limit.Neutral, 0)
		p.reader.Cancel()
		p.mode, p.reading, p.failing = halted, false, err
		return
	}
	p.abandon()
	p.mode = halted
	p.cfg.Parent.Tell(&msg.TableFailed{Alias: p.cfg.Alias, Err: err})
}

// abandon gives up what is in flight. Pages whose records may still be on their
// way keep their buffers until the garbage collector finds them.
func (p *pollerActor) abandon() {
	p.clearTimer()
	p.release(limit.Neutral, 0)
	p.reading, p.publish = false, false
	p.queue = nil
	if p.reader != nil {
		p.reader.Cancel()
		p.writer.Cancel()
	}
	if p.sweep != nil {
		p.cfg.Kept.limit = p.sweep.Limit()
	}
}

// drain finishes the page being published and then closes the publisher.
func (p *pollerActor) drain() {
	if p.mode == draining || p.mode == closing {
		return
	}
	p.clearTimer()
	p.release(limit.Neutral, 0)
	p.reader.Cancel()
	p.mode, p.reading = draining, false
	p.state(msg.Stopping, nil)
	if !p.publish {
		p.close()
	}
}

// closeTime bounds the closing of a publisher.
const closeTime = 10 * time.Second

func (p *pollerActor) close() {
	p.mode = closing
	p.writer.Cancel()
	gen, publisher := p.gen, p.cfg.Publisher
	kit.Run[msg.Poller](p.writer, p.self, closeTime, func(ctx context.Context) msg.Poller {
		publisher.Close(ctx)
		return &msg.Closed{Gen: gen}
	}, func(error) msg.Poller { return &msg.Closed{Gen: gen} })
}

// closeDetached closes the publisher of an actor that is stopped from outside.
func (p *pollerActor) closeDetached() {
	if p.mode != closing && p.self.PID() != nil {
		p.close()
	}
}

func (p *pollerActor) state(s msg.State, err error) {
	if s != p.lastState || err != nil {
		p.lastState = s
		p.cfg.Observer.TableState(p.cfg.Pipeline, p.cfg.Alias, s, err)
	}
}
