package supervisor

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"snowmelt/actors/kit"
	"snowmelt/actors/msg"
	"snowmelt/core/failure"
)

// Node is one kind of actor in the supervision tree.
type Node struct {
	// Name is the actor's name under its parent; <x> stands for what differs.
	Name string
	// Package holds the actor, Inbox the messages it takes.
	Package, Inbox string
	// Does says what it is there for.
	Does string
	// Strategy says what it does about failures of its children, "" without children.
	Strategy string
	// Budget bounds restarts after bugs.
	Budget   string
	Children []Node
}

// restartBudget and restartMinutes bound the restarts of an actor after bugs.
const (
	restartBudget  = 5
	restartMinutes = 10
)

func restarts() kit.Budget {
	return kit.Budget{Restarts: restartBudget, Window: restartMinutes * time.Minute}
}

var budget = fmt.Sprintf("%d restarts after bugs in %d minutes, then the task fails", restartBudget, restartMinutes)

// Tree is the supervision tree as it is spawned: the printed page, the status
// page and a test that walks the running actors all read it.
var Tree = Node{
	Name: "engine", Package: "supervisor", Inbox: "msg.Engine",
	Does:     "the only actor without a parent; ends when its last pipeline has ended",
	Strategy: "a source that fails stops with its subtree, the others go on; a limiter is restarted",
	Children: []Node{
		{
			Name: "instance/<host>", Package: "actors/limiter", Inbox: "msg.Limiter",
			Does: "permits, pauses after 429: shared by all pipelines on that host", Budget: "none: a restart goes on with its queue and its permits",
		},
		{
			Name: "source/<pipeline>", Package: "actors/source", Inbox: "msg.Source",
			Does:     "owns the assignment of tables; supervises their pollers",
			Strategy: "the policy below: fail child, fail task, or retry",
			Children: []Node{{
				Name: "table/<alias>", Package: "actors/poller", Inbox: "msg.Poller",
				Does:   "one table: Sweep, one request in flight, one page being published",
				Budget: budget,
			}},
		},
		{
			Name: "sink/<pipeline>", Package: "actors/sink", Inbox: "msg.Sink",
			Does:     "owns the consumer, assignment, pausing and commits; supervises its lanes and the reporter",
			Strategy: "the policy below: fail task, or retry",
			Children: []Node{
				{
					Name: "reporter", Package: "actors/reporter", Inbox: "msg.Reporter",
					Does: "success and error reports, dead letters; an offset waits for its answer", Budget: budget,
				},
				{
					Name: "lane/<topic>-<partition>", Package: "actors/lane", Inbox: "msg.Lane",
					Does: "one partition in order: mark, permit, request, outcome, report, offset", Budget: budget,
				},
			},
		},
	},
}

// PrintTree writes docs/supervision-tree.md: the tree and the policy.
func PrintTree(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# The supervision tree\n\nPrinted from `supervisor/tree.go` and `supervisor/policy.go` by `make docs`; do not edit.\n\n```text\n")
	printNode(&b, Tree, "", "")
	b.WriteString("```\n\n| actor | package | inbox | does | strategy for its children | budget |\n|---|---|---|---|---|---|\n")
	var rows func(n Node)
	rows = func(n Node) {
		fmt.Fprintf(&b, "| `%s` | `%s` | `%s` | %s | %s | %s |\n", n.Name, n.Package, n.Inbox, n.Does, dash(n.Strategy), dash(n.Budget))
		for _, c := range n.Children {
			rows(c)
		}
	}
	rows(Tree)
	b.WriteString("\n## What a failure of a table does\n\n| class | directive | because |\n|---|---|---|\n")
	for _, c := range failure.Classes() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", c, sourcePolicy[c].directive, sourcePolicy[c].why)
	}
	b.WriteString("\n## What a failure of a lane or reporter does\n\n| class | directive | because |\n|---|---|---|\n")
	for _, c := range failure.Classes() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", c, sinkPolicy[c].directive, sinkPolicy[c].why)
	}
	b.WriteString("\nThe directives, from the narrowest reach to the widest: ")
	names := []string{}
	for _, d := range []msg.Directive{msg.Retry, msg.Restart, msg.FailChild, msg.FailTask} {
		names = append(names, d.String())
	}
	b.WriteString(strings.Join(names, ", ") + ".\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func printNode(b *strings.Builder, n Node, first, rest string) {
	fmt.Fprintf(b, "%s%s\n", first, n.Name)
	for i, c := range slices.All(n.Children) {
		if i == len(n.Children)-1 {
			printNode(b, c, rest+"└─ ", rest+"   ")
		} else {
			printNode(b, c, rest+"├─ ", rest+"│  ")
		}
	}
}
