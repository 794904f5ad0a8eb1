package cmd

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"snowmelt/supervisor"
)

func offsetsCommand(s streams) *cobra.Command {
	var flags configFlags
	var output string
	list := &cobra.Command{
		Use: "list -c FILE...", Short: "Print the committed cursors", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			asJSON, err := wantJSON(output)
			if err != nil {
				return err
			}
			cfg, err := flags.load()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			offsets, err := supervisor.Offsets(ctx, cfg)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(s.out, offsets)
			}
			w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "PIPELINE\tINSTANCE\tTABLE\tTIMESTAMP\tSYS_ID\tPHASE\tVERIFIED")
			for _, o := range offsets {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", o.Pipeline, o.Partition["instance"], o.Partition["table"],
					o.Offset["timestamp"], o.Offset["sys_id"], o.Offset["phase"], o.Offset["verified"])
			}
			return w.Flush()
		},
	}
	flags.add(list)
	outputFlag(list, &output)
	return group("offsets", "The cursors of the source pipelines", list)
}
