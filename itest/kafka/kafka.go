// Package kafka starts and stops Apache Kafka for tests: one Java process per
// broker, KRaft, small heaps, every port and folder of its own. `make kafka` fetches
// the jars; without them, or without Java, Missing says what to do.
package kafka

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

//go:embed pom.xml
var pom string

// Version is the version of Apache Kafka that pom.xml names.
var Version = regexp.MustCompile(`<kafka.version>([^<]+)</kafka.version>`).FindStringSubmatch(pom)[1]

const (
	// clusterID is the same for every cluster; none meets another.
	clusterID = "c25vd21lbHQtdGVzdHMtMQ"
	heap      = "-Xmx384m"
	// startWait bounds a start, stopWait a stop.
	startWait = 90 * time.Second
	stopWait  = 30 * time.Second
)

// Libs is the folder of the jars: SNOWMELT_KAFKA_CACHE, else .cache/kafka below the module's root.
func Libs() string {
	cache := os.Getenv("SNOWMELT_KAFKA_CACHE")
	if cache == "" {
		cache = filepath.Join(root(), ".cache", "kafka")
	}
	return filepath.Join(cache, Version, "libs")
}

// root is the nearest folder with a go.mod, from the working directory upwards.
func root() string {
	dir, _ := os.Getwd()
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// Missing says why Apache Kafka cannot be started here, "" if it can.
func Missing() string {
	if _, err := exec.LookPath("java"); err != nil {
		return "Apache Kafka needs java (17 or newer) in the PATH"
	}
	if jars, _ := filepath.Glob(filepath.Join(Libs(), "kafka_2.13-*.jar")); len(jars) == 0 {
		return "there are no jars of Apache Kafka in " + Libs() + ": run `make kafka` (it needs Maven)"
	}
	return ""
}

// Options say what to start.
type Options struct {
	// Dir is where configuration and logs stay; data goes to a folder that Close removes.
	Dir string
	// Brokers is how many, 1 when zero.
	Brokers int
	// Listeners are further ones for clients: name (capitals) and protocol.
	Listeners map[string]string
	// Settings override or add to the generated server.properties.
	Settings map[string]string
	// Scram are the credentials made when the storage is formatted, as the storage tool takes them.
	Scram []string
	// Front returns the address to advertise in place of a broker's own; a proxy of the caller
	// listens there.
	Front func(backend string) (string, error)
}

// Cluster is a running Apache Kafka.
type Cluster struct {
	Nodes []*Node
	opts  Options
	data  string
}

// Node is one broker, which is a controller too.
type Node struct {
	ID int
	// Address is where clients reach it, Internal the plain listener between brokers,
	// whose user is ANONYMOUS.
	Address, Internal string
	// Listeners are the addresses of Options.Listeners.
	Listeners       map[string]string
	controller, own string
	dir, config     string
	starts          int
	cmd             *exec.Cmd
	done            chan struct{}
}

// Start formats the storage and starts the brokers; it returns when all answer.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	if why := Missing(); why != "" {
		return nil, errors.New(why)
	}
	data, err := os.MkdirTemp("", "snowmelt-kafka-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for the brokers: %w", err)
	}
	c := &Cluster{opts: opts, data: data}
	if err := c.start(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	for i := range max(1, c.opts.Brokers) {
		addresses, err := FreeAddresses(3)
		if err != nil {
			return err
		}
		n := &Node{ID: i + 1, own: addresses[0], Address: addresses[0], Internal: addresses[1], controller: addresses[2]}
		n.Listeners = map[string]string{}
		for name := range c.opts.Listeners {
			more, err := FreeAddresses(1)
			if err != nil {
				return err
			}
			n.Listeners[name] = more[0]
		}
		if c.opts.Front != nil {
			if n.Address, err = c.opts.Front(n.own); err != nil {
				return fmt.Errorf("putting a proxy in front of broker %d: %w", n.ID, err)
			}
		}
		n.dir = filepath.Join(c.data, strconv.Itoa(n.ID))
		n.config = filepath.Join(c.opts.Dir, fmt.Sprintf("kafka-%d.properties", n.ID))
		c.Nodes = append(c.Nodes, n)
	}
	failed := make(chan error, len(c.Nodes))
	for _, n := range c.Nodes {
		if err := os.WriteFile(n.config, []byte(c.properties(n)), 0o600); err != nil {
			return fmt.Errorf("configuring broker %d: %w", n.ID, err)
		}
		go func() {
			err := c.format(ctx, n)
			if err == nil {
				err = n.Start(ctx)
			}
			failed <- err
		}()
	}
	var all error
	for range c.Nodes {
		all = errors.Join(all, <-failed)
	}
	if all != nil {
		return all
	}
	return c.Ready(ctx)
}

func (c *Cluster) properties(n *Node) string {
	replicas := min(3, len(c.Nodes))
	var voters []string
	for _, o := range c.Nodes {
		voters = append(voters, fmt.Sprintf("%d@%s", o.ID, o.controller))
	}
	p := map[string]string{
		"process.roles": "broker,controller", "node.id": strconv.Itoa(n.ID), "controller.quorum.voters": strings.Join(voters, ","),
		"listeners":                      "CLIENT://" + n.own + ",INTERNAL://" + n.Internal + ",CONTROLLER://" + n.controller,
		"advertised.listeners":           "CLIENT://" + n.Address + ",INTERNAL://" + n.Internal,
		"listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"inter.broker.listener.name":     "INTERNAL", "controller.listener.names": "CONTROLLER",
		"log.dirs": filepath.Join(n.dir, "data"),

		"auto.create.topics.enable": "false", "num.partitions": "3", "default.replication.factor": strconv.Itoa(replicas),
		"min.insync.replicas":              strconv.Itoa(max(1, replicas-1)),
		"offsets.topic.replication.factor": strconv.Itoa(replicas), "offsets.topic.num.partitions": "4",
		"transaction.state.log.replication.factor": strconv.Itoa(replicas), "transaction.state.log.num.partitions": "4",
		"transaction.state.log.min.isr":    strconv.Itoa(max(1, replicas-1)),
		"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000",
		// Ten seconds, as is the default, would be waited for in every test of a time-out.
		"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
		"broker.session.timeout.ms":                                   "4000", "broker.heartbeat.interval.ms": "500",
		"log.initial.task.delay.ms": "500", "log.retention.check.interval.ms": "1000", "log.cleaner.backoff.ms": "1000",
		"log.segment.delete.delay.ms": "100",

		"log.cleaner.dedupe.buffer.size": "4194304", "log.cleaner.io.buffer.size": "262144",
		"num.network.threads": "2", "num.io.threads": "4", "background.threads": "2",
	}
	for _, name := range slices.Sorted(maps.Keys(n.Listeners)) {
		at := "," + name + "://" + n.Listeners[name]
		p["listeners"] += at
		p["advertised.listeners"] += at
		p["listener.security.protocol.map"] += "," + name + ":" + c.opts.Listeners[name]
	}
	maps.Copy(p, c.opts.Settings)
	var text strings.Builder
	for _, k := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&text, "%s=%s\n", k, strings.ReplaceAll(p[k], `\`, `\\`))
	}
	return text.String()
}

func (c *Cluster) format(ctx context.Context, n *Node) error {
	args := []string{"kafka.tools.StorageTool", "format", "-t", clusterID, "-c", n.config}
	for _, s := range c.opts.Scram {
		args = append(args, "--add-scram", s)
	}
	out, err := Java(ctx, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("formatting the storage of broker %d: %w: %s", n.ID, err, last(string(out), 20))
	}
	return nil
}

// Java is a command of one of Kafka's classes.
func Java(ctx context.Context, args ...string) *exec.Cmd {
	all := append([]string{
		heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		"-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
		"-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=warn",
		"-cp", filepath.Join(Libs(), "*"),
	}, args...)
	return exec.CommandContext(ctx, "java", all...) //nolint:gosec // Kafka's classes
}

// Start starts a broker that is not running, on its old data.
func (n *Node) Start(context.Context) error {
	n.starts++
	log, err := os.Create(strings.TrimSuffix(n.config, ".properties") + fmt.Sprintf("-%d.log", n.starts))
	if err != nil {
		return fmt.Errorf("starting broker %d: %w", n.ID, err)
	}
	defer func() { _ = log.Close() }() // the broker has its own
	n.cmd = Java(context.Background(), "kafka.Kafka", n.config)
	n.cmd.Stdout, n.cmd.Stderr = log, log
	if err := n.cmd.Start(); err != nil {
		return fmt.Errorf("starting broker %d: %w", n.ID, err)
	}
	cmd, done := n.cmd, make(chan struct{})
	n.done = done
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	return nil
}

// Ready returns when every broker is known to the cluster and all of them answer.
func (c *Cluster) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Internal()...), kgo.DisableClientMetrics(), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		return fmt.Errorf("asking the brokers: %w", err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	for {
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		m, err := admin.BrokerMetadata(short)
		if err == nil && len(m.Brokers) == len(c.Nodes) {
			_, err = admin.DescribeBrokerConfigs(short, m.Brokers.NodeIDs()...)
			if err == nil {
				cancel()
				return nil
			}
		}
		cancel()
		for _, n := range c.Nodes {
			if n.Ended() {
				return fmt.Errorf("broker %d has ended, see the logs in %s:\n%s", n.ID, c.opts.Dir, n.Log(20))
			}
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("waiting for the brokers: %w", errors.Join(ctx.Err(), err))
		}
	}
}

// Bootstrap are the addresses for clients.
func (c *Cluster) Bootstrap() []string {
	var all []string
	for _, n := range c.Nodes {
		all = append(all, n.Address)
	}
	return all
}

// Internal are the addresses of the plain listener.
func (c *Cluster) Internal() []string {
	var all []string
	for _, n := range c.Nodes {
		all = append(all, n.Internal)
	}
	return all
}

// Close stops every broker and removes the data; configuration and logs stay.
func (c *Cluster) Close() {
	for _, n := range c.Nodes {
		n.signal(syscall.SIGTERM)
	}
	for _, n := range c.Nodes {
		n.Stop()
	}
	_ = os.RemoveAll(c.data)
}

// Ended reports whether the broker's process has ended.
func (n *Node) Ended() bool {
	if n.done == nil {
		return true
	}
	select {
	case <-n.done:
		return true
	default:
		return false
	}
}

// Stop ends a broker in order, by SIGTERM, and by force when that takes too long, as it
// does when the majority of the controllers is gone.
func (n *Node) Stop() {
	if n.done == nil {
		return
	}
	n.signal(syscall.SIGTERM)
	select {
	case <-n.done:
	case <-time.After(stopWait):
		n.Kill()
	}
}

// Kill ends a broker as `kill -9` does.
func (n *Node) Kill() {
	n.signal(syscall.SIGKILL)
	if n.done != nil {
		<-n.done
	}
}

func (n *Node) signal(s syscall.Signal) {
	if n.cmd != nil && n.cmd.Process != nil && !n.Ended() {
		_ = n.cmd.Process.Signal(s)
	}
}

// Log returns the last lines of what the broker has logged since its last start.
func (n *Node) Log(lines int) string {
	raw, _ := os.ReadFile(strings.TrimSuffix(n.config, ".properties") + fmt.Sprintf("-%d.log", n.starts))
	return last(string(raw), lines)
}

func last(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// FreeAddresses returns n addresses below the ports that outgoing connections get, so
// that they are still free when they are listened on.
func FreeAddresses(n int) ([]string, error) {
	var all []string
	for range 1000 {
		address := fmt.Sprintf("127.0.0.1:%d", 12000+rand.IntN(18000)) //nolint:gosec // a port
		l, err := net.Listen("tcp", address)
		if err != nil || slices.Contains(all, address) {
			continue
		}
		_ = l.Close()
		if all = append(all, address); len(all) == n {
			return all, nil
		}
	}
	return nil, errors.New("no port is free")
}
