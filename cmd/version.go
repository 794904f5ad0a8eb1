package cmd

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"snowmelt/supervisor"
)

// versions is what `snowmelt version` prints.
type versions struct {
	Version      string            `json:"version"`
	Commit       string            `json:"commit"`
	Go           string            `json:"go"`
	Dependencies map[string]string `json:"dependencies"`
}

func versionCommand(s streams) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "version", Short: "Print version, commit, Go and the libraries that matter", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			asJSON, err := wantJSON(output)
			if err != nil {
				return err
			}
			v := versions{Version: supervisor.Version, Commit: "unknown", Dependencies: map[string]string{}}
			if info, ok := debug.ReadBuildInfo(); ok {
				v.Go = info.GoVersion
				for _, setting := range info.Settings {
					if setting.Key == "vcs.revision" {
						v.Commit = setting.Value
					}
				}
				for _, d := range info.Deps {
					for _, part := range []string{"protoactor", "franz-go", "koanf/v2", "VictoriaMetrics/metrics", "gobreaker"} {
						if strings.Contains(d.Path, part) {
							v.Dependencies[d.Path] = d.Version
						}
					}
				}
			}
			if asJSON {
				return printJSON(s.out, v)
			}
			fmt.Fprintf(s.out, "snowmelt %s (commit %s, %s)\n", v.Version, v.Commit, v.Go)
			return nil
		},
	}
	outputFlag(c, &output)
	return c
}
