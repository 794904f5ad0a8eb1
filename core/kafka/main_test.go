package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"snowmelt/core/failure"
	"snowmelt/core/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	rows    = "rows"
	cursors = "cursors"
)

// rig is a fake cluster in memory with a network on which a test can lose things.
type rig struct {
	t    *testing.T
	fake *kfake.Cluster
	net  *kfake.VirtualNetwork
	tap  *tap
	c    *Cluster
}

func newRig(t *testing.T, opts ...kfake.Opt) *rig {
	t.Helper()
	r := &rig{t: t, net: &kfake.VirtualNetwork{}}
	all := append([]kfake.Opt{
		kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(r.net.Listen),
		kfake.SeedTopics(3, rows), kfake.SeedTopics(4, cursors),
	}, opts...)
	fake, err := kfake.NewCluster(all...)
	if err != nil {
		t.Fatal(err)
	}
	r.fake = fake
	t.Cleanup(fake.Close)
	r.tap = &tap{dial: r.net.DialContext}
	r.c = r.connect(r.tap)
	return r
}

// connect makes another process's Cluster; its network is that of the tap, if given.
func (r *rig) connect(x *tap, opts ...kgo.Opt) *Cluster {
	r.t.Helper()
	dial := r.net.DialContext
	if x != nil {
		dial = x.dialContext
	}
	opts = append([]kgo.Opt{kgo.SeedBrokers("localhost:9092"), kgo.RetryBackoffFn(func(int) time.Duration { return 5 * time.Millisecond })}, opts...)
	c, err := Connect(opts, kgo.Dialer(dial))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.Close)
	return c
}

func key(table string) CursorKey {
	return CursorKey{Pipeline: "itsm", Partition: map[string]string{
		PartitionInstance: "dev1.service-now.com", PartitionTable: table,
		PartitionFingerprint: "sha256:aa", PartitionTimestamp: "sys_updated_on",
	}}
}

func (r *rig) publisher(change ...func(*PublisherConfig)) *Publisher {
	r.t.Helper()
	cfg := PublisherConfig{
		Cluster: r.c, Pipeline: "itsm", Key: key("incident"), CursorTopic: cursors, Topic: rows,
		TransactionalIDPrefix: "snowmelt-", TransactionTimeout: 30 * time.Second, ExactlyOnce: true,
	}
	for _, f := range change {
		f(&cfg)
	}
	p := NewPublisher(cfg)
	r.t.Cleanup(func() { p.Close(context.Background()) })
	return p
}

func (r *rig) open(p *Publisher) Opened {
	r.t.Helper()
	o, err := p.Open(ctx(r.t))
	if err != nil {
		r.t.Fatalf("Open: %v", err)
	}
	return o
}

func (r *rig) publish(p *Publisher, page Page) Published {
	r.t.Helper()
	done, err := p.Publish(ctx(r.t), page)
	if err != nil {
		r.t.Fatalf("Publish: %v", err)
	}
	return done
}

func ctx(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return c
}

func within(t *testing.T, d time.Duration) context.Context {
	c, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return c
}

// page is a page of n rows with ids <prefix>0.. and the cursor of second s.
func page(prefix string, n, s int) Page {
	p := Page{Cursor: cursorAt(s)}
	for i := range n {
		p.Records = append(p.Records, record.Record{
			Key: fmt.Appendf(nil, "%s%d", prefix, i), Value: []byte(`{"a":"b"}`), Timestamp: int64(s) * 1000,
			Headers: []record.Header{{Key: record.HeaderVersion, Value: fmt.Appendf(nil, "incident|%d|%s%d|0", s, prefix, i)}},
		})
	}
	return p
}

func cursorAt(s int) map[string]string {
	return map[string]string{"version": "1", "timestamp": time.Unix(int64(s), 0).UTC().Format(time.DateTime), "sys_id": "x"}
}

func wantClass(t *testing.T, err error, want ...failure.Class) *failure.Error {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %v", want)
	}
	f, ok := errors.AsType[*failure.Error](err)
	if !ok {
		t.Fatalf("%T is no *failure.Error: %v", err, err)
	}
	if !slices.Contains(want, f.Class) {
		t.Fatalf("class %v, want %v: %v", f.Class, want, err)
	}
	if f.Op == "" {
		t.Fatalf("no Op: %v", err)
	}
	return f
}

func wantText(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

// keys are the keys of the committed records of a topic, sorted, as an ordinary
// read_committed consumer sees them.
func (r *rig) keys(topic string) []string {
	var all []string
	for _, rec := range r.records(topic) {
		all = append(all, string(rec.Key))
	}
	slices.Sort(all)
	return all
}

func (r *rig) records(topic string) []*kgo.Record {
	r.t.Helper()
	ctx := ctx(r.t)
	client := r.client(kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	defer client.Close()
	ends, err := kadm.NewClient(client).ListCommittedOffsets(ctx, topic)
	if err != nil {
		r.t.Fatal(err)
	}
	left, parts := map[int32]int64{}, map[int32]kgo.Offset{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
			parts[o.Partition] = kgo.NewOffset().AtStart()
		}
	})
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: parts})
	var all []*kgo.Record
	for len(left) > 0 {
		f := client.PollFetches(ctx)
		if err := f.Err(); err != nil {
			r.t.Fatal(err)
		}
		f.EachRecord(func(rec *kgo.Record) {
			if !rec.Attrs.IsControl() {
				all = append(all, rec)
			}
			if rec.Offset+1 >= left[rec.Partition] {
				delete(left, rec.Partition)
			}
		})
	}
	return all
}

func (r *rig) client(opts ...kgo.Opt) *kgo.Client {
	r.t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers("localhost:9092"), kgo.Dialer(r.net.DialContext), kgo.DisableClientMetrics(),
	}, opts...)...)
	if err != nil {
		r.t.Fatal(err)
	}
	return client
}

func wantKeys(t *testing.T, got []string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
}

// tap is a network that can lose requests and answers by the key of the API, and
// call a function before a request leaves.
type tap struct {
	dial func(ctx context.Context, network, host string) (net.Conn, error)

	mu          sync.Mutex
	loseRequest map[kmsg.Key]bool
	loseAnswer  map[kmsg.Key]bool
	before      map[kmsg.Key]func()
}

func (x *tap) set(f func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f()
}

// repeatInit has the next InitProducerID of p reach the coordinator twice, as when
// the first answer was lost: both raise the epoch.
func (r *rig) repeatInit(p *Publisher) {
	twin := r.connect(nil)
	r.tap.set(func() {
		r.tap.before = map[kmsg.Key]func(){kmsg.InitProducerID: func() {
			r.tap.set(func() { r.tap.before = nil })
			req := kmsg.NewPtrInitProducerIDRequest()
			req.TransactionalID, req.TransactionTimeoutMillis = &p.txnID, 1000
			req.ProducerID, req.ProducerEpoch = -1, -1
			if _, err := req.RequestWith(ctx(r.t), twin.client); err != nil {
				r.t.Error(err)
			}
		}}
	})
}

func (x *tap) dialContext(ctx context.Context, network, host string) (net.Conn, error) {
	c, err := x.dial(ctx, network, host)
	if err != nil {
		return nil, err
	}
	return &tapped{Conn: c, tap: x}, nil
}

type tapped struct {
	net.Conn
	tap    *tap
	doomed chan struct{} // non-nil: the next answer is lost
}

func (c *tapped) Write(b []byte) (int, error) {
	k := kmsg.Key(binary.BigEndian.Uint16(b[4:6]))
	c.tap.mu.Lock()
	drop, lose, before := c.tap.loseRequest[k], c.tap.loseAnswer[k], c.tap.before[k]
	if lose {
		c.doomed = make(chan struct{})
	}
	c.tap.mu.Unlock()
	if before != nil {
		before()
	}
	if drop {
		c.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

func (c *tapped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.tap.mu.Lock()
	doomed := c.doomed != nil
	c.tap.mu.Unlock()
	if doomed {
		c.Close()
		return 0, io.EOF
	}
	return n, err
}
