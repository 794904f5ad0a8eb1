// Package demo puts an instance, a broker and an engine into one process: the
// demo, and what `snowmelt fake --broker` adds to the fake instance.
package demo

import (
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/twmb/franz-go/pkg/kfake"
)

// Broker is an embedded Kafka-protocol broker whose records live in files: it is
// for demos and tests, not for keeping anything.
type Broker struct {
	cluster *kfake.Cluster
	dir     string
	temp    bool
}

// StartBroker listens on addr, host:port. dir keeps the records; "" is a temporary folder that Close removes.
func StartBroker(addr, dir string) (*Broker, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("reading the broker's address %q: %w", addr, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("reading the broker's port %q: %w", port, err)
	}
	if n == 0 {
		if n, err = freePort(host); err != nil {
			return nil, err
		}
	}
	b := &Broker{dir: dir}
	if dir == "" {
		if b.dir, err = os.MkdirTemp("", "snowmelt-broker-"); err != nil {
			return nil, fmt.Errorf("making the broker's folder: %w", err)
		}
		b.temp = true
	}
	b.cluster, err = kfake.NewCluster(
		kfake.Ports(int(n)), kfake.DataDir(b.dir), kfake.DefaultNumPartitions(3),
		kfake.ListenFn(func(network, address string) (net.Listener, error) {
			_, p, _ := net.SplitHostPort(address)
			return net.Listen(network, net.JoinHostPort(host, p))
		}),
		kfake.BrokerConfigs(map[string]string{"log.retention.ms": "-1"}),
	)
	if err != nil {
		b.remove()
		return nil, fmt.Errorf("starting the embedded broker on %s: %w", addr, err)
	}
	return b, nil
}

func freePort(host string) (uint64, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return 0, fmt.Errorf("looking for a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	return uint64(l.Addr().(*net.TCPAddr).Port), nil // a port
}

// Addr returns host:port.
func (b *Broker) Addr() string { return b.cluster.ListenAddrs()[0] }

// Close stops the broker.
func (b *Broker) Close() {
	b.cluster.Close()
	b.remove()
}

func (b *Broker) remove() {
	if b.temp {
		_ = os.RemoveAll(b.dir)
	}
}
