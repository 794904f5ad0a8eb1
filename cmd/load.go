package cmd

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"snowmelt/config"
)

// configFlags are the flags of every command that reads a configuration.
type configFlags struct {
	files     []string
	bootstrap string
	settings  []string
}

func (f *configFlags) add(c *cobra.Command) {
	c.Flags().StringArrayVarP(&f.files, "config", "c", nil, "configuration file: YAML, TOML, JSON, properties, or a Connect connector file; may be repeated")
	c.Flags().StringVar(&f.bootstrap, "bootstrap", "", "brokers, host:port, several with commas")
	c.Flags().StringArrayVar(&f.settings, "set", nil, "one setting, key=value; may be repeated")
}

func (f *configFlags) input() (config.Input, error) {
	in := config.Input{Files: f.files, Environ: os.Environ(), Flags: map[string]string{}}
	for _, pair := range f.settings {
		k, v, ok := strings.Cut(pair, "=")
		if !ok {
			return in, &exitError{exitUsage, fmt.Errorf("--set %q: want key=value", pair)}
		}
		in.Flags[k] = v
	}
	if f.bootstrap != "" {
		in.Flags["kafka.bootstrap.servers"] = f.bootstrap
	}
	if len(f.files) == 0 && len(in.Flags) == 0 {
		return in, &exitError{exitUsage, errors.New("no configuration: name a file with -c FILE")}
	}
	return in, nil
}

// load returns the configuration, or an error with exit code 2 that lists every problem.
func (f *configFlags) load() (config.Config, error) {
	in, err := f.input()
	if err != nil {
		return config.Config{}, err
	}
	cfg, err := config.Load(in)
	if err != nil {
		return config.Config{}, &exitError{exitUsage, fmt.Errorf("the configuration has problems:\n%w", err)}
	}
	return cfg, nil
}

func newLogger(cfg config.Config, s streams) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cfg.LogLevel)) // one of four names, checked with the key
	opts := &slog.HandlerOptions{Level: level}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(s.err, opts))
	}
	return slog.New(slog.NewTextHandler(s.err, opts))
}
