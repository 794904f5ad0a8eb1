package cmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/spf13/cobra"

	"snowmelt/config"
	"snowmelt/supervisor"
	"snowmelt/supervisor/admin"
)

func runCommand(s streams) *cobra.Command {
	var flags configFlags
	c := &cobra.Command{
		Use: "run -c FILE...", Short: "Run the configured pipelines until stopped", Args: cobra.NoArgs,
		Example: "  snowmelt run -c itsm.yaml\n  SNOWMELT_KAFKA_BOOTSTRAP_SERVERS=broker:9092 snowmelt run -c itsm.yaml",
		RunE: func(*cobra.Command, []string) error {
			cfg, err := flags.load()
			if err != nil {
				return err
			}
			signals := make(chan os.Signal, 2)
			signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
			defer signal.Stop(signals)
			log := newLogger(cfg, s)
			for _, note := range cfg.Notes {
				log.Warn("a setting has no effect", "setting", note)
			}
			return run(cfg, log, signals)
		},
	}
	flags.add(c)
	return c
}

// run runs an engine and its admin server until a signal, or until every pipeline has failed.
func run(cfg config.Config, log *slog.Logger, signals <-chan os.Signal) error {
	metrics.ExposeMetadata(true)
	engine, err := supervisor.New(cfg, supervisor.WithLogger(log))
	if err != nil {
		return &exitError{exitUsage, err}
	}
	server, err := admin.Start(cfg.AdminAddress, engine)
	if err != nil {
		_ = engine.Stop(context.Background()) // it was not started: only its clients are closed
		return &exitError{exitFailed, err}
	}
	if err := engine.Start(context.Background()); err != nil {
		return fmt.Errorf("starting: %w", err)
	}
	log.Info("snowmelt runs", "version", supervisor.Version, "admin", "http://"+server.Addr(), "sources", len(cfg.Sources), "sinks", len(cfg.Sinks))
	ended := engine.Ended()
	var failed error
	for waiting := true; waiting; {
		select {
		case sig := <-signals:
			log.Info("stopping in order; a second signal stops at once", "signal", sig.String(), "timeout", cfg.ShutdownTimeout)
			waiting = false
		case <-ended:
			failed = engine.Err()
			log.Error("every pipeline has failed", "error", failed)
			ended = nil
			waiting = cfg.HoldOnFailure
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), cfg.ShutdownTimeout)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- errors.Join(engine.Stop(ctx), server.Close(ctx)) }()
	select {
	case err = <-stopped:
	case <-signals:
		return &exitError{exitSignal2, errors.New("stopped at once by a second signal")}
	}
	if err != nil {
		log.Error("the stop was not in order; nothing is lost, what was not committed is read again", "error", err)
	}
	if failed != nil {
		code := exitFailed
		if supervisor.IsInputFailure(failed) {
			code = exitInput
		}
		return &exitError{code, failed}
	}
	log.Info("snowmelt has stopped", "at", time.Now().UTC().Format(time.RFC3339))
	return nil
}
