// Package cmd is the command line: one file per command, no logic.
package cmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes of every command (contract: exit codes of `run`).
const (
	exitOK      = 0
	exitFailed  = 1
	exitUsage   = 2
	exitInput   = 4
	exitSignal2 = 130
)

// exitError carries an exit code to Execute; its text was already shown if err is nil.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// streams are where a command prints.
type streams struct{ out, err io.Writer }

// Execute runs the command line and returns the exit code.
func Execute(args []string, stdout, stderr io.Writer) int {
	s := streams{stdout, stderr}
	root := &cobra.Command{
		Use: "snowmelt", Short: "ServiceNow tables to Kafka, exactly once",
		SilenceUsage: true, SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddCommand(runCommand(s), demoCommand(s), fakeCommand(s), checkCommand(s), configCommand(s), offsetsCommand(s), docsCommand(s), versionCommand(s))
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exitError{exitUsage, err} })
	err := root.Execute()
	if err == nil {
		return exitOK
	}
	code := exitFailed
	if e, ok := errors.AsType[*exitError](err); ok {
		code = e.code
		if e.err == nil {
			return code
		}
	} else if isUsage(err) {
		code = exitUsage
	}
	fmt.Fprintln(stderr, "snowmelt:", err)
	return code
}

// group returns a command that only holds others.
func group(name, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: name, Short: short, Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 { // cobra would print the help and call it a success
				return &exitError{exitUsage, fmt.Errorf("unknown command %q for %q", args[0], c.CommandPath())}
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(commands...)
	return c
}

// isUsage tells cobra's own complaints, which have no type, from failures of a command.
func isUsage(err error) bool {
	for _, prefix := range []string{"unknown command", "unknown flag", "required flag", "accepts ", "requires at least", "invalid argument"} {
		if strings.HasPrefix(err.Error(), prefix) {
			return true
		}
	}
	return false
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("printing JSON: %w", err)
	}
	return nil
}

// outputFlag adds --output to a command.
func outputFlag(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "output", "text", "form of what is printed: text or json")
}

func wantJSON(output string) (bool, error) {
	switch output {
	case "json":
		return true, nil
	case "text":
		return false, nil
	}
	return false, &exitError{exitUsage, fmt.Errorf("--output %q: want text or json", output)}
}
