package cmd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"snowmelt/config"
	"snowmelt/supervisor"
)

func checkCommand(s streams) *cobra.Command {
	var flags configFlags
	var output string
	var offline bool
	c := &cobra.Command{
		Use: "check -c FILE...", Short: "Validate a configuration, then probe instance and brokers", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			asJSON, err := wantJSON(output)
			if err != nil {
				return err
			}
			in, err := flags.input()
			if err != nil {
				return err
			}
			report := supervisor.Report{OK: true, Errors: []config.Problem{}, Tables: []supervisor.TableReport{}, Kafka: supervisor.KafkaReport{OK: true}}
			cfg, err := config.Load(in)
			if wrong, ok := errors.AsType[*config.Error](err); ok {
				report.OK, report.Errors = false, wrong.Problems
				report.Kafka = supervisor.KafkaReport{Problem: "not asked: the configuration has problems"}
			} else if wrong := settingProblems(cfg); len(wrong) > 0 {
				report.OK, report.Errors = false, wrong
				report.Kafka = supervisor.KafkaReport{Problem: "not asked: the configuration has problems"}
			} else if !offline {
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
				defer cancel()
				if report, err = supervisor.Check(ctx, cfg); err != nil {
					return err
				}
			}
			if asJSON {
				err = printJSON(s.out, report)
			} else {
				err = printReport(s, report, offline)
			}
			if err == nil && !report.OK {
				err = &exitError{code: exitFailed}
			}
			return err
		},
	}
	flags.add(c)
	outputFlag(c, &output)
	c.Flags().BoolVar(&offline, "offline", false, "stop before the network")
	return c
}

func printReport(s streams, r supervisor.Report, offline bool) error {
	for _, p := range r.Errors {
		fmt.Fprintln(s.out, p)
	}
	if len(r.Errors) > 0 {
		fmt.Fprintf(s.out, "\nproblems: %d\n", len(r.Errors))
		return nil
	}
	fmt.Fprintln(s.out, "configuration: ok")
	if offline {
		return nil
	}
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ALIAS\tTABLE\tOK\tROWS\tPROBLEM")
	for _, t := range r.Tables {
		problem := t.Problem
		if problem == "" && t.Hint != "" {
			problem = "warning: " + t.Hint
		}
		fmt.Fprintf(w, "%s\t%s\t%v\t%d\t%s\n", t.Alias, t.Table, t.OK, t.RowsEstimate, problem)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("printing the report: %w", err)
	}
	if r.Kafka.OK {
		fmt.Fprintln(s.out, "kafka: ok")
	} else {
		fmt.Fprintln(s.out, "kafka:", r.Kafka.Problem)
	}
	return nil
}

// settingProblems returns what the clients say about their settings, without a connection.
func settingProblems(cfg config.Config) []config.Problem {
	engine, err := supervisor.New(cfg)
	if err == nil {
		err = engine.Stop(context.Background())
	}
	if err == nil {
		return nil
	}
	var out []config.Problem
	for err := range leaves(err) {
		p := config.Problem{Problem: err.Error()}
		if key, problem, ok := strings.Cut(p.Problem, ": "); ok && strings.HasPrefix(key, "kafka.") {
			p.Key, p.Problem = key, problem
		}
		out = append(out, p)
	}
	return out
}

// leaves returns the errors that were joined somewhere in err's chain, or err itself.
func leaves(err error) iter.Seq[error] {
	return func(yield func(error) bool) {
		for e := err; e != nil; e = errors.Unwrap(e) {
			if joined, ok := e.(interface{ Unwrap() []error }); ok {
				slices.Values(joined.Unwrap())(yield)
				return
			}
		}
		yield(err)
	}
}
