package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"snowmelt/itest/demo"
	"snowmelt/itest/fakesnow"
)

// fakeFlags are those of `snowmelt fake`.
type fakeFlags struct {
	listen, broker, brokerDir, records, events, dictionary string
	seed                                                   int64
	speed                                                  float64
	rows, users                                            []string
}

func fakeCommand(s streams) *cobra.Command {
	var f fakeFlags
	c := &cobra.Command{
		Use: "fake", Short: "Run a fake ServiceNow instance, for trying things out and for tests", Args: cobra.NoArgs,
		Example: "  snowmelt fake --listen 127.0.0.1:8080 --rows incident=20000 --user demo:demo --broker 127.0.0.1:9092",
		RunE: func(*cobra.Command, []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return f.run(ctx, s)
		},
	}
	c.Flags().StringVar(&f.listen, "listen", "127.0.0.1:8080", "address to listen on; port 0 takes a free one")
	c.Flags().StringVar(&f.broker, "broker", "", "also run an embedded Kafka-protocol broker on this address")
	c.Flags().StringVar(&f.brokerDir, "broker-dir", "", "where the broker keeps its records; empty is a temporary folder")
	c.Flags().StringVar(&f.records, "records", "", "produce the records of this file to the broker: JSON lines {\"topic\",\"key\",\"value\",\"headers\"}")
	c.Flags().Int64Var(&f.seed, "seed", 1, "makes generated rows and faults repeatable")
	c.Flags().StringArrayVar(&f.rows, "rows", nil, "generate rows, TABLE=N; may be repeated")
	c.Flags().StringVar(&f.events, "events", "", "replay this log of incident updates (csv.gz)")
	c.Flags().Float64Var(&f.speed, "speed", 3600, "seconds of the log per second")
	c.Flags().StringArrayVar(&f.users, "user", nil, "a user, NAME:PASSWORD; without one any credentials are accepted; may be repeated")
	c.Flags().StringVar(&f.dictionary, "dictionary", "", "table and column definitions (JSON); empty uses the built-in ones")
	return c
}

func (f *fakeFlags) run(ctx context.Context, s streams) error {
	opts := fakesnow.Options{Seed: f.seed, Users: map[string]string{}, Dictionary: f.dictionary}
	for _, u := range f.users {
		name, password, ok := strings.Cut(u, ":")
		if !ok {
			return &exitError{exitUsage, fmt.Errorf("--user %q: want NAME:PASSWORD", name)}
		}
		opts.Users[name] = password
	}
	if f.dictionary != "" {
		if err := fakesnow.CheckDictionary(f.dictionary); err != nil {
			return &exitError{exitUsage, err}
		}
	}
	inst := fakesnow.New(opts)
	for _, r := range f.rows {
		table, n, ok := strings.Cut(r, "=")
		count, err := strconv.Atoi(n)
		if !ok || err != nil || count < 0 {
			return &exitError{exitUsage, fmt.Errorf("--rows %q: want TABLE=N", r)}
		}
		inst.Generate(table, count, fakesnow.GenOptions{})
	}
	var log *fakesnow.EventLog
	if f.events != "" {
		var err error
		if log, err = fakesnow.LoadEvents(f.events); err != nil {
			return &exitError{exitUsage, err}
		}
	}
	if f.records != "" && f.broker == "" {
		return &exitError{exitUsage, errors.New("--records needs --broker")}
	}
	if f.broker != "" {
		b, err := demo.StartBroker(f.broker, f.brokerDir)
		if err != nil {
			return err
		}
		defer b.Close()
		if f.records != "" {
			if err := b.Produce(ctx, f.records); err != nil {
				return err
			}
		}
	}
	server, err := inst.Listen(f.listen)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	defer func() { _ = server.Close() }()
	fmt.Fprintln(s.out, server.Addr())
	f.replay(ctx, inst, log)
	<-ctx.Done()
	return nil
}

// replay applies the events as their time comes, speed seconds of the log per second.
func (f *fakeFlags) replay(ctx context.Context, inst *fakesnow.Instance, log *fakesnow.EventLog) {
	if log == nil {
		return
	}
	start, ok := log.Peek()
	inst.SetClock(start)
	began := time.Now()
	for tick := time.Tick(50 * time.Millisecond); ok; _, ok = log.Peek() {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		now := start.Add(time.Duration(float64(time.Since(began)) * f.speed))
		log.ApplyUntil(inst, now)
		inst.SetClock(now)
	}
}
