package kafka

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// defaultWait bounds a call whose context has no deadline.
	defaultWait = time.Minute
	// defaultRequestSize is the Java client's default of max.request.size.
	defaultRequestSize = 1 << 20
	// maxBufferedRecords exceeds a page of 50,000 rows, and a page of a drained
	// second; a larger page waits in Produce until earlier records are acknowledged.
	maxBufferedRecords = 1 << 17
)

// making is held while kgo makes a client: it writes to the list of codecs inside
// an option that all clients share (v1.22.3, DefaultCompressor).
var making sync.Mutex

func newClient(opts []kgo.Opt) (*kgo.Client, error) {
	making.Lock()
	defer making.Unlock()
	return kgo.NewClient(opts...)
}

// Cluster is one Kafka cluster as one pipeline sees it: a shared client without
// transactional id for administration, raw requests and reading, and the
// settings from which the clients of publishers are made. It is safe for
// concurrent use.
type Cluster struct {
	opts   []kgo.Opt
	client *kgo.Client
	admin  *kadm.Client
	// requestSize is the largest batch that the settings allow, in bytes.
	requestSize int

	mu         sync.Mutex
	closed     bool
	idempotent *kgo.Client           // the producer of at_least_once, made on first use
	logs       map[string]*cursorLog // one per cursor topic

	// limits are max.message.bytes of the topics that were described. They have a
	// lock of their own, since kgo asks for them while mu is held.
	limitsMu sync.Mutex
	limits   map[string]int
}

// Connect makes the shared client. It dials nothing: the first request does, so
// a process starts while its brokers are away. opts come from Options; extra
// options are appended to every client that the Cluster makes.
func Connect(opts []kgo.Opt, extra ...kgo.Opt) (*Cluster, error) {
	all := []kgo.Opt{
		kgo.SoftwareNameAndVersion("snowmelt", "1"),
		// KIP-714 pushes are retried by a goroutine for as long as a broker is dead.
		kgo.DisableClientMetrics(),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), // nil: the Java client's murmur2
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), // as in the Java client
		kgo.ProducerBatchMaxBytes(defaultRequestSize),
		kgo.MaxBufferedRecords(maxBufferedRecords),
		// The default of 5 s is how long a topic that was just made stays unknown.
		kgo.MetadataMinAge(250 * time.Millisecond),
	}
	all = append(append(all, opts...), extra...)
	client, err := newClient(all)
	if err != nil {
		return nil, misconfigured("making a Kafka client", err)
	}
	c := &Cluster{
		opts:        all,
		client:      client,
		admin:       kadm.NewClient(client),
		requestSize: defaultRequestSize,
		limits:      map[string]int{},
		logs:        map[string]*cursorLog{},
	}
	if fn, ok := client.OptValue(kgo.ProducerBatchMaxBytesFn).(func(string) int32); ok && fn != nil {
		c.requestSize = int(fn(""))
	}
	return c, nil
}

// Ping asks the brokers for their metadata. It fails with Transient when none
// answers and with BrokerRefused when the credentials are refused.
func (c *Cluster) Ping(ctx context.Context) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := c.client.Ping(ctx); err != nil {
		return classify("reaching the Kafka brokers", err, resource{})
	}
	return nil
}

// Close ends every connection of the shared clients and fails the calls that
// use them. Publishers keep their own clients until their Close.
func (c *Cluster) Close() {
	c.mu.Lock()
	idempotent := c.idempotent
	c.idempotent, c.closed = nil, true
	c.mu.Unlock()
	if idempotent != nil {
		idempotent.Close()
	}
	c.client.Close()
}

// producer makes a client of its own for producing. Its batches fit the topics
// described so far, so that a topic with a small max.message.bytes does not
// refuse a batch of rows that are small each.
func (c *Cluster) producer(opts ...kgo.Opt) (*kgo.Client, error) {
	all := append(append([]kgo.Opt{}, c.opts...), kgo.ProducerBatchMaxBytesFn(func(topic string) int32 {
		return int32(c.limit(topic))
	}))
	client, err := newClient(append(all, opts...))
	if err != nil {
		return nil, misconfigured("making a Kafka producer", err)
	}
	return client, nil
}

// shared returns the idempotent producer of at_least_once, shared by all tables.
func (c *Cluster) shared() (*kgo.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, classify("producing", kgo.ErrClientClosed, resource{})
	}
	if c.idempotent == nil {
		// Cancellation is legal here because the epoch is bumped for what was
		// cancelled in flight: a late batch of the old epoch is refused, so an
		// old cursor cannot land behind a newer one (Invariant 1).
		client, err := c.producer(kgo.AllowIdempotentProduceCancellation())
		if err != nil {
			return nil, err
		}
		c.idempotent = client
	}
	return c.idempotent, nil
}

// discard closes the shared producer after an error that it cannot survive;
// the next call of shared makes a new one.
func (c *Cluster) discard(client *kgo.Client) {
	c.mu.Lock()
	ours := c.idempotent == client
	if ours {
		c.idempotent = nil
	}
	c.mu.Unlock()
	if ours {
		client.Close()
	}
}

// limit is the size that a batch for topic may have, in bytes.
func (c *Cluster) limit(topic string) int {
	c.limitsMu.Lock()
	defer c.limitsMu.Unlock()
	if n, ok := c.limits[topic]; ok && n < c.requestSize {
		return max(n, 512) // kgo takes nothing below 512
	}
	return c.requestSize
}

func (c *Cluster) setLimit(topic string, n int) {
	if n <= 0 {
		return
	}
	c.limitsMu.Lock()
	c.limits[topic] = n
	c.limitsMu.Unlock()
}

// learnLimit describes topic if that was not done yet. A describe that is not
// allowed is no obstacle to publishing: the limit of the settings then counts.
func (c *Cluster) learnLimit(ctx context.Context, topic string) error {
	c.limitsMu.Lock()
	_, known := c.limits[topic]
	c.limitsMu.Unlock()
	if known {
		return nil
	}
	_, err := c.describe(ctx, topic)
	if isAuthorization(err) {
		return nil
	}
	return err
}

// bounded gives ctx a deadline if it has none.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, defaultWait)
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
