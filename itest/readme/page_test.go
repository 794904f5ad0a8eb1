package readme

import (
	"fmt"
	"strings"
)

// block is one block of shell commands with the marker before it.
//
//	<!-- run -->                      runs to its end, exit code 0
//	<!-- run: until TEXT -->          runs again until its output holds TEXT
//	<!-- run: background until TEXT --> runs on once its output holds TEXT; at the end of
//	                                  the page it gets SIGTERM and must exit with 0
//	<!-- not run: REASON -->
//	<!-- test-command -->             the command that continuous integration runs
//
// The blocks of a page run one after another in a folder of its own, which holds
// the binary as ./snowmelt and the examples; `go run .` stands for the binary.
// Every address on 127.0.0.1 is moved to a free port, in the examples too.
type block struct {
	line       int
	script     string
	background bool
	until      string
	skip       bool
}

// parse returns the blocks of a page. A block of commands without a marker is an error.
func parse(text string) ([]block, error) {
	var blocks []block
	marker, inside := "", false
	var b block
	for i, line := range strings.Split(text, "\n") {
		switch {
		case inside && line == "```":
			inside = false
			blocks = append(blocks, b)
		case inside:
			b.script += line + "\n"
		case strings.HasPrefix(line, "```sh") || strings.HasPrefix(line, "```bash") || strings.HasPrefix(line, "```console"):
			var err error
			if b, err = mark(marker); err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			b.line, inside, marker = i+1, true, ""
		case strings.HasPrefix(line, "<!--"):
			marker = strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(line, "<!--"), "-->"))
		case strings.TrimSpace(line) != "":
			marker = ""
		}
	}
	if inside {
		return nil, fmt.Errorf("line %d: a block without an end", b.line)
	}
	return blocks, nil
}

func mark(marker string) (block, error) {
	kind, rest, _ := strings.Cut(marker, ":")
	rest = strings.TrimSpace(rest)
	switch {
	case marker == "run":
		return block{}, nil
	case marker == "test-command", kind == "not run" && rest != "":
		return block{skip: true}, nil
	case kind == "run":
		if until, ok := strings.CutPrefix(rest, "until "); ok {
			return block{until: until}, nil
		}
		if until, ok := strings.CutPrefix(rest, "background until "); ok {
			return block{until: until, background: true}, nil
		}
	}
	return block{}, fmt.Errorf("commands behind the marker %q: say <!-- run -->, or <!-- not run: REASON -->", marker)
}
