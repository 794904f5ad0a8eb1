package cmd

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"snowmelt/config"
	"snowmelt/supervisor"
)

// printed are the pages of docs/ that are printed from the code.
var printed = map[string]func(io.Writer) error{
	"configuration.md":    config.WriteDocs,
	"supervision-tree.md": supervisor.PrintTree,
}

func docsCommand(s streams) *cobra.Command {
	var check bool
	c := &cobra.Command{
		Use: "docs DIR", Short: "Print the generated pages into a folder", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			for name, print := range printed {
				var b bytes.Buffer
				if err := print(&b); err != nil {
					return err
				}
				file := filepath.Join(args[0], name)
				if check {
					old, err := os.ReadFile(file)
					if err != nil || !bytes.Equal(old, b.Bytes()) {
						return fmt.Errorf("%s is stale: run `make docs`", file)
					}
					continue
				}
				if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil { //nolint:gosec // documentation is for everyone
					return fmt.Errorf("writing %s: %w", file, err)
				}
				fmt.Fprintln(s.out, file)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&check, "check", false, "write nothing, fail when a page is stale")
	return c
}
