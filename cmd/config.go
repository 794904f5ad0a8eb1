package cmd

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"snowmelt/config"
)

func configCommand(s streams) *cobra.Command {
	return group("config", "The key table, and the configuration as it is understood", configKeys(s), configShow(s))
}

func configKeys(s streams) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "keys", Short: "Print every key with type, default and meaning", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			asJSON, err := wantJSON(output)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(s.out, config.Keys())
			}
			w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "KEY\tSIDE\tTYPE\tDEFAULT\tALLOWED\tMEANING")
			for _, k := range config.Keys() {
				doc := k.Doc
				if !k.Built {
					doc = "(planned) " + doc
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", k.Name, k.Side, k.Type, k.Default, k.Valid, doc)
			}
			return w.Flush()
		},
	}
	outputFlag(c, &output)
	return c
}

// shown is one line of `config show`.
type shown struct {
	Scope string `json:"scope"`
	Key   string `json:"key"`
	Value string `json:"value"`
}

func configShow(s streams) *cobra.Command {
	var flags configFlags
	var output string
	c := &cobra.Command{
		Use: "show -c FILE...", Short: "Print the effective settings, secrets redacted", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			asJSON, err := wantJSON(output)
			if err != nil {
				return err
			}
			in, err := flags.input()
			if err != nil {
				return err
			}
			settings, problems := config.Effective(in)
			if len(problems) > 0 {
				return &exitError{exitUsage, &config.Error{Problems: problems}}
			}
			lines := []shown{}
			for _, v := range settings {
				lines = append(lines, shown{strings.ReplaceAll(v.Scope, "/", "."), v.Name, v.Shown()})
			}
			if asJSON {
				return printJSON(s.out, lines)
			}
			for _, l := range lines {
				fmt.Fprintf(s.out, "%s = %s\n", strings.TrimPrefix(l.Scope+"."+l.Key, "."), l.Value)
			}
			return nil
		},
	}
	flags.add(c)
	outputFlag(c, &output)
	return c
}
