package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"snowmelt/itest/demo"
)

func demoCommand(s streams) *cobra.Command {
	opts := demo.Options{}
	var output string
	var verbose bool
	c := &cobra.Command{
		Use: "demo", Short: "Watch rows flow: a fake instance, an embedded broker and a pipeline, no set-up", Args: cobra.NoArgs,
		Example: "  snowmelt demo\n  snowmelt demo --rows 100000 --for 2m\n  snowmelt demo --events ../shared/data/uci498_incident_event_log_full.csv.gz",
		RunE: func(*cobra.Command, []string) error {
			asJSON, err := wantJSON(output)
			if err != nil {
				return err
			}
			if opts.Rows < 1 || opts.For <= 0 {
				return &exitError{exitUsage, errors.New("--rows and --for must be positive")}
			}
			metrics.ExposeMetadata(true)
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
			defer stop()
			opts.Log, opts.Notes = slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: slog.LevelWarn})), s.err
			if verbose {
				opts.Log = slog.New(slog.NewTextHandler(s.err, nil))
			}
			show, end := progress(s.err)
			opts.Progress = show
			r, err := demo.Run(ctx, opts)
			end()
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(s.out, r)
			} else {
				printDemo(s.out, r)
			}
			if err == nil && r.Verdict != "PASS" {
				err = &exitError{code: exitFailed}
			}
			return err
		},
	}
	c.Flags().IntVar(&opts.Rows, "rows", 20000, "rows of incident and change_request together")
	c.Flags().DurationVar(&opts.For, "for", time.Minute, "end at this time even if not everything has arrived")
	c.Flags().StringVar(&opts.Events, "events", "", "replay this log of real incident updates (csv.gz) instead of generated rows")
	c.Flags().BoolVar(&opts.Chaos, "chaos", false, "spoil requests and broker answers, by a schedule that --seed makes repeatable")
	c.Flags().Int64Var(&opts.Seed, "seed", 1, "makes rows, updates and faults repeatable")
	c.Flags().StringVar(&opts.AdminAddress, "admin", "127.0.0.1:9464", "address of status and metrics; another port is taken when it is in use")
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "log what the engine does")
	outputFlag(c, &output)
	return c
}

// progress shows one line that changes on a terminal, and a line every two seconds elsewhere.
func progress(w io.Writer) (show func(demo.Progress), end func()) {
	f, ok := w.(*os.File)
	terminal := ok && term.IsTerminal(int(f.Fd()))
	var last time.Time
	show = func(p demo.Progress) {
		every := 2 * time.Second
		if terminal {
			every = 200 * time.Millisecond
		}
		if time.Since(last) < every {
			return
		}
		last = time.Now()
		line := fmt.Sprintf("%5.1fs  %d rows in the instance, %d records published, %s; %s", p.Elapsed.Seconds(), p.Rows, p.Published, p.Phase, p.Note)
		if terminal {
			fmt.Fprintf(w, "\r\x1b[K%s", line)
		} else {
			fmt.Fprintln(w, line)
		}
	}
	return show, func() {
		if terminal {
			fmt.Fprint(w, "\r\x1b[K")
		}
	}
}

func printDemo(w io.Writer, r demo.Result) {
	s := r.Source
	fmt.Fprintf(w, "source: %d rows in the instance, %d committed records of %d versions\n", s.Rows, s.Records, s.DistinctVersions)
	fmt.Fprintf(w, "        %d missing, %d stale, %d duplicates, %d out of order\n", s.Missing, s.Stale, s.Duplicates, s.Backwards)
	fmt.Fprintf(w, "sink:   %d records, %d written, %d failed\n", r.Sink.Records, r.Sink.Written, r.Sink.Failed)
	if r.FaultsInjected > 0 {
		fmt.Fprintf(w, "        %d faults injected\n", r.FaultsInjected)
	}
	for _, e := range r.Examples {
		fmt.Fprintln(w, "        "+e)
	}
	if r.Problem != "" {
		fmt.Fprintln(w, "        "+r.Problem)
	}
	fmt.Fprintf(w, "%s after %.1f s\n", r.Verdict, r.ElapsedSeconds)
}
