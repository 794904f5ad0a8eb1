package config

import (
	"fmt"
	"io"
	"strings"
)

// WriteDocs prints docs/configuration.md from the key table.
func WriteDocs(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# Configuration\n\nPrinted from the key table in `config/` by `make docs`; do not edit.\n\n")
	b.WriteString("Dotted and nested notation mean the same. Keys stand in a pipeline's scope (`sources.NAME`, `sinks.NAME`) or at the top, where\n" +
		"all pipelines share them. Files may be YAML, TOML, JSON, Java properties or a Kafka Connect connector file; environment variables\n" +
		"(`SNOWMELT_` and the key in upper case, everything else `_`) win over files, flags over both. Any value may hold `${env:NAME}`,\n" +
		"`${file:PATH:KEY}` or `${dir:PATH:FILE}`. Keys marked *planned* are known and refused when set.\n")
	for _, section := range []struct {
		title string
		keys  []Key
	}{
		{"The instance", instanceKeys},
		{"Sources", sourceKeys},
		{"Tables of a source", tableKeys},
		{"Sinks", sinkKeys},
		{"Formats", formatKeys},
		{"Kafka", kafkaKeys},
		{"Failures", failureKeys},
		{"The process", engineKeys},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n| key | type | default | allowed | meaning |\n|---|---|---|---|---|\n", section.title)
		for _, k := range section.keys {
			doc := k.Doc
			if !k.Built {
				doc = "*planned* " + doc
			}
			if k.builtIn != nil {
				doc += " Built so far: " + strings.Join(k.builtIn, ", ") + "."
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", k.Name, k.Type, code(k.Default), cell(k.Valid), cell(doc))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + cell(s) + "`"
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
