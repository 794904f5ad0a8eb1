package kafka

import (
	"context"
	"flag"
	"fmt"
	"math"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"snowmelt/core/failure"
	"snowmelt/core/lane"
	"snowmelt/itest/kafka"
)

var kafkaFlag = flag.String("kafka", "fake", "the broker: fake or real")

// apache is the Apache Kafka of this package's tests, one for all.
var apache theApache

type theApache struct {
	cluster *kafka.Cluster
	dir     string
	rigs    atomic.Int32
}

func (a *theApache) start(t *testing.T) *kafka.Cluster {
	t.Helper()
	if a.cluster != nil {
		return a.cluster
	}
	if why := kafka.Missing(); why != "" {
		t.Skip(why)
	}
	dir, err := os.MkdirTemp("", "snowmelt-core-kafka-")
	if err != nil {
		t.Fatal(err)
	}
	a.dir = dir
	if a.cluster, err = kafka.Start(t.Context(), kafka.Options{Dir: dir, Settings: map[string]string{
		// Rows of tests are years old.
		"log.retention.ms": "-1",
	}}); err != nil {
		t.Fatal(err)
	}
	return a.cluster
}

func (a *theApache) Close() {
	if a.cluster != nil {
		a.cluster.Close()
	}
	if a.dir != "" {
		_ = os.RemoveAll(a.dir)
	}
}

// inBubble runs a test with the clock of a bubble; a real broker has another one.
func inBubble(t *testing.T, fn func(*testing.T)) {
	t.Helper()
	if *kafkaFlag == "real" {
		fn(t)
		return
	}
	synctest.Test(t, fn)
}

// newRealRig makes the topics anew on the Apache Kafka of the package.
func newRealRig(t *testing.T, special bool) *rig {
	t.Helper()
	if special {
		t.Skip("needs a fake broker with settings of its own; itest/blackbox has a real one")
	}
	c := apache.start(t)
	r := &rig{t: t, seed: c.Bootstrap()[0], dial: (&net.Dialer{}).DialContext, prefix: fmt.Sprintf("snowmelt-%d-", apache.rigs.Add(1))}
	client, err := kgo.NewClient(kgo.SeedBrokers(r.seed), kgo.DisableClientMetrics(), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	r.fake = broker{t: t, admin: kadm.NewClient(client)}
	topics, err := r.fake.admin.ListTopics(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.fake.admin.DeleteTopics(ctx(t), topics.Names()...); err != nil {
		t.Fatal(err)
	}
	for name, parts := range map[string]int32{rows: 3, cursors: 4} {
		if err := r.fake.CreateTopic(name, parts, nil); err != nil {
			t.Fatal(err)
		}
	}
	r.tap = &tap{dial: r.dial}
	r.c = r.connect(r.tap)
	return r
}

// broker is what tests do to a broker beside the engine. What only the fake can do
// skips the test on a real one.
type broker struct {
	t *testing.T
	*kfake.Cluster
	admin *kadm.Client
}

func (b broker) onlyFake() {
	b.t.Helper()
	if b.Cluster == nil {
		b.t.Skip("needs the fake broker")
	}
}

func (b broker) Fault(f kfake.Fault) *kfake.FaultHandle {
	b.t.Helper()
	b.onlyFake()
	return b.Cluster.Fault(f)
}

func (b broker) Compact() {
	b.t.Helper()
	b.onlyFake()
	b.Cluster.Compact()
}

func (b broker) Close() {
	b.t.Helper()
	b.onlyFake()
	b.Cluster.Close()
}

// end ends a broker of the bubble, which must not outlive it.
func (b broker) end() {
	if b.Cluster != nil {
		b.Cluster.Close()
	}
}

func (b broker) TopicInfo(topic string) *kfake.TopicInfo {
	b.t.Helper()
	b.onlyFake()
	return b.Cluster.TopicInfo(topic)
}

func (b broker) ControlKey(key int16, fn func(kmsg.Request) (kmsg.Response, error, bool)) {
	b.t.Helper()
	b.onlyFake()
	b.Cluster.ControlKey(key, fn)
}

func (b broker) CreateTopic(name string, partitions int32, configs map[string]string) error {
	if b.Cluster != nil {
		return b.Cluster.CreateTopic(name, partitions, configs)
	}
	settings := map[string]*string{}
	for k, v := range configs {
		settings[k] = &v
	}
	if _, err := b.admin.CreateTopic(ctx(b.t), partitions, 1, settings, name); err != nil {
		return err
	}
	return b.await(func(ctx context.Context) bool {
		l, err := b.admin.ListEndOffsets(ctx, name)
		return err == nil && l.Error() == nil && len(l[name]) == int(partitions)
	})
}

func (b broker) DeleteTopic(name string) error {
	if b.Cluster != nil {
		return b.Cluster.DeleteTopic(name)
	}
	if _, err := b.admin.DeleteTopic(ctx(b.t), name); err != nil {
		return err
	}
	return b.await(func(ctx context.Context) bool {
		m, err := b.admin.Metadata(ctx)
		return err == nil && !m.Topics.Has(name)
	})
}

func (b broker) DeleteRecords(topic string, partition int32, offset int64) error {
	if b.Cluster != nil {
		return b.Cluster.DeleteRecords(topic, partition, offset)
	}
	o := kadm.Offsets{}
	o.Add(kadm.Offset{Topic: topic, Partition: partition, At: offset})
	_, err := b.admin.DeleteRecords(ctx(b.t), o)
	return err
}

// settle waits for the markers of the transactions that have ended: Apache Kafka answers
// a commit before it writes them, and shows the records only then.
func (b broker) settle() {
	b.t.Helper()
	if b.Cluster != nil {
		return
	}
	if err := b.await(func(ctx context.Context) bool {
		all, err := b.admin.DescribeTransactions(ctx)
		for _, d := range all {
			if d.State == "PrepareCommit" || d.State == "PrepareAbort" {
				return false
			}
		}
		return err == nil
	}); err != nil {
		b.t.Fatal(err)
	}
}

func (b broker) await(come func(context.Context) bool) error {
	ctx := ctx(b.t)
	for !come(ctx) {
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// What the coordinator of Apache Kafka says after accidents, and what it says after a
// takeover: the one is opened again, the other is Fenced.
func TestAccidentsAtApacheKafka(t *testing.T) {
	if *kafkaFlag != "real" {
		t.Skip("run with -kafka=real")
	}
	invalid := func(s int) Page { // of a compacted topic, every record must have a key
		p := page("b", 1, s)
		p.Records[0].Key = nil
		return p
	}
	for name, accident := range map[string]func(*rig, *Publisher, int){
		"a page that is aborted": func(r *rig, p *Publisher, s int) {
			_, err := p.Publish(ctx(r.t), invalid(s))
			wantClass(r.t, err, failure.OutcomeUnknown, failure.Aborted, failure.Transient)
		},
		"an answer of the abort lost": func(r *rig, p *Publisher, s int) {
			r.tap.set(func() { r.tap.loseAnswer = map[kmsg.Key]bool{kmsg.EndTxn: true} })
			_, err := p.Publish(ctx(r.t), invalid(s))
			wantClass(r.t, err, failure.OutcomeUnknown, failure.Aborted, failure.Transient)
		},
		"an answer of the commit lost": func(r *rig, p *Publisher, s int) {
			r.tap.set(func() { r.tap.loseAnswer = map[kmsg.Key]bool{kmsg.EndTxn: true} })
			_, err := p.Publish(within(r.t, time.Second), page("b", 1, s))
			wantClass(r.t, err, failure.OutcomeUnknown)
		},
		"a commit that comes too late": func(r *rig, p *Publisher, s int) {
			r.tap.set(func() {
				r.tap.before = map[kmsg.Key]func(){kmsg.EndTxn: func() { <-time.After(3 * time.Second) }}
			})
			_, err := p.Publish(ctx(r.t), page("b", 1, s))
			wantClass(r.t, err, failure.OutcomeUnknown)
		},
		"silence for longer than the transaction": func(r *rig, p *Publisher, s int) {
			c, cancel := context.WithCancel(ctx(r.t))
			r.tap.set(func() {
				r.tap.before = map[kmsg.Key]func(){kmsg.EndTxn: func() { <-time.After(3 * time.Second); cancel() }}
				r.tap.loseRequest = map[kmsg.Key]bool{kmsg.EndTxn: true}
			})
			_, err := p.Publish(c, page("b", 1, s))
			wantClass(r.t, err, failure.OutcomeUnknown)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if err := r.fake.CreateTopic("compacted", 3, map[string]string{settingPolicy: policyCompact}); err != nil {
				t.Fatal(err)
			}
			p := r.publisher(func(cfg *PublisherConfig) { cfg.Topic, cfg.TransactionTimeout = "compacted", time.Second })
			b := r.publisher(r.elsewhere, func(cfg *PublisherConfig) { cfg.Topic = "compacted" })
			for i := range 2 {
				r.open(p)
				r.publish(p, page("a", 1, 2*i+1))
				accident(r, p, 2*i+2)
				r.tap.set(func() { r.tap.loseAnswer, r.tap.before, r.tap.loseRequest = nil, nil, nil })
				d, err := r.fake.admin.DescribeTransactions(ctx(t), p.txnID)
				t.Logf("ours was %+v, the coordinator says %d/%d %s (%v)", p.standing, d[p.txnID].ProducerID, d[p.txnID].ProducerEpoch, d[p.txnID].State, err)
			}
			r.open(p)
			r.publish(p, page("c", 1, 5))
			accident(r, p, 6)
			r.tap.set(func() { r.tap.loseAnswer, r.tap.before, r.tap.loseRequest = nil, nil, nil })
			r.open(b)
			r.publish(b, page("d", 1, 7))
			_, err := p.Open(ctx(t))
			wantClass(t, err, failure.Fenced)
			r.publish(b, page("e", 1, 8))
		})
	}
}

// The epochs of a producer id are used up after 32,767 transactions or fences; then the
// coordinator gives another id.
func TestEpochsUsedUp(t *testing.T) {
	if *kafkaFlag != "real" || os.Getenv("SNOWMELT_LONG") == "" {
		t.Skip("run with -kafka=real and SNOWMELT_LONG=1: 32,767 epochs take a while")
	}
	r := newRig(t)
	p := r.publisher()
	r.open(p)
	c, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	for id := p.id; p.epoch < 32700 && p.id == id; {
		if err := p.fence(c); err != nil {
			t.Fatal(err)
		}
	}
	r.open(p)
	first := p.id
	for i := range 100 {
		r.publish(p, page(fmt.Sprintf("a%d-", i), 1, i+1))
		if i%7 == 0 { // a commit whose answer is lost, on either side of the change
			r.tap.set(func() { r.tap.loseAnswer = map[kmsg.Key]bool{kmsg.EndTxn: true} })
			_, err := p.Publish(within(t, time.Second), page(fmt.Sprintf("b%d-", i), 1, i+1))
			wantClass(t, err, failure.OutcomeUnknown)
			r.tap.set(func() { r.tap.loseAnswer = nil })
			r.open(p)
		}
	}
	if p.id == first {
		t.Errorf("the producer is %d/%d still", p.id, p.epoch)
	}
	b := r.publisher(r.elsewhere)
	r.open(b)
	_, err := p.Publish(ctx(t), page("z", 1, 200))
	wantClass(t, err, failure.Fenced)
}

// A mark that names the most finished records fits into a commit; what does not is no
// passing trouble.
func TestCommitMetadata(t *testing.T) {
	if *kafkaFlag != "real" {
		t.Skip("run with -kafka=real: kfake takes metadata of any size")
	}
	r := newRig(t)
	r.write(rows, "", "k", "v", noon, 0)
	group := fmt.Sprint("group-", apache.rigs.Add(1))
	c, err := NewConsumer(ConsumerConfig{
		Cluster: r.c, Group: group, Topics: []string{rows}, Reset: "earliest", SessionTimeout: 10 * time.Second, RebalanceTimeout: time.Minute,
		Fetched: func(map[Partition]Commit) {}, Revoked: func(context.Context, []Partition) {}, Lost: func([]Partition) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := c.Poll(ctx(t), 1); err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	const last = math.MaxInt64 / 2
	mark := lane.Mark{At: last}
	for o := int64(last - 5000); o < last; o += 7 {
		mark.Done = append(mark.Done, o)
	}
	text := mark.Encode(last - 5000)
	if err := c.Commit(ctx(t), map[Partition]Commit{{rows, 0}: {Offset: last - 5000, Metadata: text}}); err != nil {
		t.Fatal(err)
	}
	o, err := r.fake.admin.FetchOffsets(ctx(t), group)
	if got, _ := o.Lookup(rows, 0); err != nil || got.Metadata != text {
		t.Errorf("%q came back of %q (%v)", got.Metadata, text, err)
	}
	t.Logf("the largest mark has %d bytes", len(text))
	err = c.Commit(ctx(t), map[Partition]Commit{{rows, 0}: {Offset: 1, Metadata: strings.Repeat("x", 4097)}})
	wantClass(t, err, failure.Misconfigured)
	wantText(t, err, "offset.metadata.max.bytes")
}
