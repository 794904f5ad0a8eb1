package kafka

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"snowmelt/core/failure"
	"snowmelt/core/record"
)

func scan(t *testing.T, p *Publisher, from, to map[int32]int64) []string {
	t.Helper()
	var all []string
	err := p.Scan(within(t, 10*time.Second), from, to, func(s Scanned) error {
		version := ""
		for _, h := range s.Headers {
			if h.Key == record.HeaderVersion {
				version = string(h.Value)
			}
		}
		all = append(all, fmt.Sprintf("%s@%d=%s", s.Key, s.Timestamp/1000, version))
		return nil
	})
	if err != nil {
		t.Fatalf("Scan: %v", err)
	}
	slices.Sort(all)
	return all
}

func TestScanReachesTheEndPastMarkersAndAborts(t *testing.T) {
	r := newRig(t)
	if err := r.fake.CreateTopic("one", 1, nil); err != nil {
		t.Fatal(err)
	}
	onOne := func(cfg *PublisherConfig) { cfg.Topic = "one" }
	p := r.publisher(onOne)
	r.open(p)
	r.publish(p, page("a", 2, 1))
	r.write("one", "foreign", "aborted", "x", noon, 0)(kgo.TryAbort)
	second := r.publish(p, page("b", 1, 2))
	r.write("one", p.TransactionalID(), "left open", "x", noon, 0) // a dead owner's

	again := r.publisher(onOne, r.elsewhere)
	o := r.open(again)
	// 2 rows, marker, aborted row, marker, row, marker, open row, marker of the fence
	if o.Ends[0] != 9 || second.Next[0] != 6 {
		t.Fatalf("ends %v, next %v", o.Ends, second.Next)
	}
	want := []string{"a0@1=incident|1|a0|0", "a1@1=incident|1|a1|0", "b0@2=incident|2|b0|0"}
	wantKeys(t, scan(t, again, nil, o.Ends), want...)
	wantKeys(t, scan(t, again, map[int32]int64{0: 3}, o.Ends), want[2:]...)
	wantKeys(t, scan(t, again, o.Ends, o.Ends))
	wantKeys(t, scan(t, again, nil, map[int32]int64{0: 1}), want[0])

	// what retention has taken is skipped
	if err := r.fake.DeleteRecords("one", 0, 5); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, scan(t, again, nil, o.Ends), want[2:]...)
}

func TestScanStopsWithTheReadersError(t *testing.T) {
	r := newRig(t)
	p := r.publisher()
	r.open(p)
	r.publish(p, page("a", 10, 1))
	mine, calls := errors.New("the filter is full"), 0
	err := p.Scan(ctx(t), nil, r.open(p).Ends, func(Scanned) error { calls++; return mine })
	if !errors.Is(err, mine) || calls != 1 {
		t.Fatalf("%v after %d calls", err, calls)
	}
}

func TestScanWaitsForForeignTransactions(t *testing.T) {
	r := newRig(t)
	p := r.publisher()
	r.open(p)
	end := r.write(rows, "foreign", "f", "x", noon, 0)
	o := r.open(p)
	err := p.Scan(within(t, 500*time.Millisecond), nil, o.Ends, func(Scanned) error { return nil })
	wantClass(t, err, failure.Transient)
	wantText(t, err, "open transaction", rows)
	end(kgo.TryCommit)
	wantKeys(t, scan(t, p, nil, o.Ends), "f@"+fmt.Sprint(noon.Unix())+"=")
}

func TestScanOfATopicMadeAgain(t *testing.T) {
	r := newRig(t)
	p := r.publisher()
	r.open(p)
	r.publish(p, page("a", 30, 1))
	o := r.open(p)
	if err := r.fake.DeleteTopic(rows); err != nil {
		t.Fatal(err)
	}
	if err := r.fake.CreateTopic(rows, 3, nil); err != nil {
		t.Fatal(err)
	}
	from := map[int32]int64{0: 1, 1: 1, 2: 1}
	err := p.Scan(within(t, 5*time.Second), from, o.Ends, func(Scanned) error { return nil })
	wantClass(t, err, failure.TopicRefused)
	if !strings.Contains(err.Error(), "made again") {
		t.Fatal(err)
	}
}
