package kafka

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"snowmelt/core/failure"
)

// setting reads one client setting; the settings that work together (security)
// are read at the end and only checked for their form here.
type setting func(b *builder, value string) error

// builder collects options and what can only be judged together.
type builder struct {
	settings map[string]string
	opts     []kgo.Opt
}

func (b *builder) add(o kgo.Opt) { b.opts = append(b.opts, o) }

// settings are the client settings that are known, under the Java client's names.
var settings = map[string]setting{
	"bootstrap.servers": servers,
	"client.id":         text(kgo.ClientID),
	"client.rack":       text(kgo.Rack),

	"acks":               only("all, the one value with which an idempotent producer works", "all", "-1"),
	"enable.idempotence": only("true: the engine builds on it", "true"),
	"compression.type":   compression,
	// linger.ms is of little use: a page ends with a flush.
	"linger.ms": duration(0, kgo.ProducerLinger),
	// batch.size is accepted and has no effect: kgo fills a batch up to
	// max.request.size while others are on their way, and does not wait for it.
	"batch.size":       number(0, 1<<30, func(int) kgo.Opt { return nil }),
	"max.request.size": number(512, 1<<30, func(n int) kgo.Opt { return kgo.ProducerBatchMaxBytes(int32(n)) }),
	"buffer.memory":    number(1, 1<<40, func(n int) kgo.Opt { return kgo.MaxBufferedBytes(n) }),
	// An idempotent producer of kgo keeps to the limit of 5 by itself.
	"max.in.flight.requests.per.connection": number(1, 5, func(int) kgo.Opt { return nil }),
	"retries":                               number(0, 1<<31-1, func(n int) kgo.Opt { return kgo.RecordRetries(n) }),
	"delivery.timeout.ms":                   duration(time.Second, kgo.RecordDeliveryTimeout),
	// The broker's time for a produce request, and the client's beyond it.
	"request.timeout.ms": func(b *builder, value string) error {
		d, err := millis(value, 100*time.Millisecond, 15*time.Minute)
		if err == nil {
			b.add(kgo.ProduceRequestTimeout(d))
			b.add(kgo.RequestTimeoutOverhead(d))
		}
		return err
	},
	"retry.backoff.ms": func(b *builder, value string) error {
		d, err := millis(value, time.Millisecond, time.Minute)
		if err == nil {
			b.add(kgo.RetryBackoffFn(func(int) time.Duration { return d }))
		}
		return err
	},
	"socket.connection.setup.timeout.ms": duration(time.Millisecond, kgo.DialTimeout),
	"connections.max.idle.ms":            duration(time.Second, kgo.ConnIdleTimeout),
	"metadata.max.age.ms":                duration(time.Second, kgo.MetadataMaxAge),

	"fetch.max.bytes":           number(1, 1<<30, func(n int) kgo.Opt { return kgo.FetchMaxBytes(int32(n)) }),
	"fetch.min.bytes":           number(1, 1<<30, func(n int) kgo.Opt { return kgo.FetchMinBytes(int32(n)) }),
	"max.partition.fetch.bytes": number(1, 1<<30, func(n int) kgo.Opt { return kgo.FetchMaxPartitionBytes(int32(n)) }),
	"fetch.max.wait.ms":         duration(10*time.Millisecond, kgo.FetchMaxWait),

	"security.protocol":                     only("PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL", protocols...),
	"sasl.mechanism":                        only("PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", mechanisms...),
	"sasl.jaas.config":                      later,
	"sasl.username":                         later,
	"sasl.password":                         later,
	"ssl.truststore.type":                   storeType,
	"ssl.truststore.location":               later,
	"ssl.truststore.certificates":           later,
	"ssl.truststore.password":               later, // a PEM truststore needs none
	"ssl.keystore.type":                     storeType,
	"ssl.keystore.location":                 later,
	"ssl.keystore.key":                      later,
	"ssl.keystore.certificate.chain":        later,
	"ssl.keystore.password":                 later, // a PEM keystore needs none
	"ssl.key.password":                      later,
	"ssl.endpoint.identification.algorithm": only("https, or empty to accept any host name", "https", ""),
}

func later(*builder, string) error { return nil }

// Options turns client settings under the Java client's names (without the prefix
// "kafka.") into options of kgo. Every error is reported at once, as one
// Misconfigured failure; an unknown name is reported with the nearest known one.
// No value of a secret setting is part of an error (Invariant 8).
func Options(values map[string]string) ([]kgo.Opt, error) {
	b := &builder{settings: values}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		read, ok := settings[name]
		if !ok {
			errs = append(errs, fmt.Errorf("kafka.%s: no such setting, the nearest is kafka.%s", name, nearest(name)))
			continue
		}
		if err := read(b, strings.TrimSpace(values[name])); err != nil {
			errs = append(errs, fmt.Errorf("kafka.%s: %w", name, err))
		}
	}
	if _, ok := values["bootstrap.servers"]; !ok {
		errs = append(errs, errors.New("kafka.bootstrap.servers: is required"))
	}
	errs = append(errs, b.security()...)
	if len(errs) > 0 {
		return nil, &failure.Error{
			Class: failure.Misconfigured, Op: "reading the Kafka settings", Err: errors.Join(errs...),
		}
	}
	return b.opts, nil
}

// Known returns the names of the settings that Options reads, sorted.
func Known() []string { return slices.Sorted(maps.Keys(settings)) }

func servers(b *builder, value string) error {
	var seeds []string
	for s := range strings.SplitSeq(value, ",") {
		s = strings.TrimSpace(s)
		if s == "" {
			continue
		}
		colon := strings.LastIndexByte(s, ':')
		if colon <= 0 {
			return fmt.Errorf("%q is not host:port", s)
		}
		if port, err := strconv.Atoi(s[colon+1:]); err != nil || port < 1 || port > 65535 {
			return fmt.Errorf("%q has no port between 1 and 65535", s)
		}
		seeds = append(seeds, s)
	}
	if len(seeds) == 0 {
		return errors.New("names no broker")
	}
	b.add(kgo.SeedBrokers(seeds...))
	return nil
}

func compression(b *builder, value string) error {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	codec, ok := codecs[value]
	if !ok {
		return fmt.Errorf("%q is none of %s", value, strings.Join(slices.Sorted(maps.Keys(codecs)), ", "))
	}
	b.add(kgo.ProducerBatchCompression(codec))
	return nil
}

func text[O kgo.Opt](make func(string) O) setting {
	return func(b *builder, value string) error {
		if value == "" {
			return errors.New("is empty")
		}
		b.add(make(value))
		return nil
	}
}

func number(least, most int, make func(int) kgo.Opt) setting {
	return func(b *builder, value string) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < least || n > most {
			return fmt.Errorf("%q is no number between %d and %d", value, least, most)
		}
		if o := make(n); o != nil {
			b.add(o)
		}
		return nil
	}
}

func duration[O kgo.Opt](least time.Duration, make func(time.Duration) O) setting {
	return func(b *builder, value string) error {
		d, err := millis(value, least, 24*time.Hour)
		if err == nil {
			b.add(make(d))
		}
		return err
	}
}

func millis(value string, least, most time.Duration) (time.Duration, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < least.Milliseconds() || n > most.Milliseconds() {
		return 0, fmt.Errorf("%q is no number of milliseconds between %d and %d", value, least.Milliseconds(), most.Milliseconds())
	}
	return time.Duration(n) * time.Millisecond, nil
}

func only(what string, allowed ...string) setting {
	return func(_ *builder, value string) error {
		if !slices.Contains(allowed, value) {
			return fmt.Errorf("must be %s", what)
		}
		return nil
	}
}

// nearest returns the known name with the smallest edit distance.
func nearest(name string) string {
	best, least := "", -1
	for _, known := range Known() {
		if d := distance(name, known); least < 0 || d < least {
			best, least = known, d
		}
	}
	return best
}

func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
