package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/knadh/koanf/maps"
	"github.com/knadh/koanf/parsers/toml/v2"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"
	"go.yaml.in/yaml/v3"
)

// Input is where a configuration comes from, later parts winning over earlier.
type Input struct {
	// Files are read in order; their ending tells their form: yaml, yml, toml, json, properties.
	Files []string
	// Environ holds NAME=value pairs; SNOWMELT_SNOW_URL sets snow.url.
	Environ []string
	// Flags are keys set on the command line.
	Flags map[string]string
}

// EnvPrefix begins the environment variables that set keys.
const EnvPrefix = "SNOWMELT_"

// delimiter separates scopes from keys. Inside a scope a key is one string, as
// it is spelt in the key table: some keys are prefixes of others, and topics
// hold dots, so "." must never be the tree's delimiter.
const delimiter = "/"

// layers merges what is loaded and collects what is wrong with it.
type layers struct {
	k        *koanf.Koanf
	problems []Problem
	notes    []string
}

// values returns what is loaded before validation: "snow.url" or "sources/itsm/snow.url" to value.
func (l *layers) values() map[string]any { return l.k.All() }

// read loads and merges every layer.
func read(in Input) *layers {
	l := &layers{k: koanf.New(delimiter)}
	for _, file := range in.Files {
		layer, err := parseFile(file)
		if err == nil && len(layer) == 0 {
			err = errors.New("the file is empty; an empty configuration is never valid")
		}
		if err != nil {
			l.problems = append(l.problems, Problem{Key: file, Problem: err.Error()})
			continue
		}
		l.merge(file, l.connectLayer(file, layer))
	}
	env, unknown := fromEnviron(in.Environ)
	l.problems = append(l.problems, unknown...)
	l.merge("the environment", env)
	l.merge("the command line", toAny(in.Flags))
	return l
}

func toAny(m map[string]string) map[string]any {
	out := map[string]any{}
	for k, v := range m {
		out[k] = v
	}
	return out
}

func parseFile(file string) (map[string]any, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	var m map[string]any
	switch ext := strings.ToLower(filepath.Ext(file)); ext {
	case ".yaml", ".yml":
		m, err = parseYAML(raw)
	case ".toml":
		m, err = toml.Parser().Unmarshal(raw)
	case ".json":
		m, err = parseJSON(raw)
	case ".properties":
		m, err = parseProperties(raw)
	default:
		return nil, fmt.Errorf("a file ending in %q cannot be read: use .yaml, .toml, .json or .properties", ext)
	}
	if err != nil {
		return nil, fmt.Errorf("parsing %s: %w", file, err)
	}
	maps.IntfaceKeysToStrings(m)
	return m, nil
}

// parseYAML reads the one document of a file; a second one would be left out silently.
func parseYAML(raw []byte) (map[string]any, error) {
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	var m map[string]any
	if err := dec.Decode(&m); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("reading YAML: %w", err)
	}
	var more any
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one YAML document: give each a file of its own")
	}
	return m, nil
}

// parseJSON refuses a key that an object holds twice: encoding/json would keep the last.
func parseJSON(raw []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	v, err := jsonValue(dec)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("text behind the end of the object")
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("the file holds no object")
	}
	return m, nil
}

func jsonValue(dec *json.Decoder) (any, error) {
	t, err := dec.Token()
	if err != nil {
		return nil, fmt.Errorf("reading JSON: %w", err)
	}
	switch t {
	case json.Delim('{'):
		m := map[string]any{}
		for dec.More() {
			k, err := dec.Token()
			if err != nil {
				return nil, fmt.Errorf("reading JSON: %w", err)
			}
			name, _ := k.(string)
			if _, twice := m[name]; twice {
				return nil, fmt.Errorf("%s: given twice", name)
			}
			if m[name], err = jsonValue(dec); err != nil {
				return nil, err
			}
		}
		_, err = dec.Token()
		return m, err
	case json.Delim('['):
		list := []any{}
		for dec.More() {
			v, err := jsonValue(dec)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = dec.Token()
		return list, err
	}
	return t, nil
}

func isScope(s string) bool { return s == "sources" || s == "sinks" || s == "targets" }

// merge lays one layer over what is loaded.
func (l *layers) merge(from string, layer map[string]any) {
	flat := map[string]any{}
	if err := flatten(nil, layer, flat); err != nil {
		l.problems = append(l.problems, Problem{Key: from, Problem: err.Error()})
		return
	}
	if err := l.k.Load(confmap.Provider(flat, delimiter), nil); err != nil {
		l.problems = append(l.problems, Problem{Key: from, Problem: fmt.Sprintf("merging the configuration: %v", err)})
	}
}

// flatten makes dotted and nested notation the same. A key that stands in one
// layer in both is an error.
func flatten(path []string, in, out map[string]any) error {
	for _, name := range slices.Sorted(mapKeys(in)) {
		if strings.Contains(name, delimiter) {
			return fmt.Errorf("%q: names must not contain a slash", name)
		}
		at := append(slices.Clone(path), name)
		m, nested := in[name].(map[string]any)
		if nested && len(m) > 0 {
			if err := flatten(at, m, out); err != nil {
				return err
			}
			continue
		}
		where := canonical(at)
		if _, twice := out[where]; twice {
			return fmt.Errorf("%s: given twice in one file", strings.ReplaceAll(where, delimiter, "."))
		}
		if first, _, _ := strings.Cut(where, "."); isScope(first) {
			return fmt.Errorf("%s: a pipeline with its settings was expected: %s.NAME.KEY", where, first)
		}
		if !nested { // an empty group sets nothing
			out[where] = in[name]
		}
	}
	return nil
}

// canonical joins a path: scope/name/key inside a scope, the key alone outside.
func canonical(path []string) string {
	if !isScope(path[0]) { // flat notation: the name ends at the next dot
		path = strings.SplitN(strings.Join(path, "."), ".", 3)
	}
	if !isScope(path[0]) || len(path) < 3 {
		return strings.Join(path, ".")
	}
	return path[0] + delimiter + path[1] + delimiter + strings.Join(path[2:], ".")
}

// fromEnviron finds the keys that environment variables set. A variable cannot
// be turned back into a key, so every known key is turned into its variable.
func fromEnviron(environ []string) (map[string]any, []Problem) {
	byVariable := map[string]string{}
	for _, k := range Keys() {
		if !strings.ContainsAny(k.Name, "<*") {
			byVariable[variable(k.Name)] = k.Name
		}
	}
	out := map[string]any{}
	var problems []Problem
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, EnvPrefix) {
			continue
		}
		k, ok := byVariable[name]
		if !ok {
			problems = append(problems, Problem{
				Key: name, Problem: "no setting belongs to this environment variable",
				Suggestion: nearest(name, slices.Collect(mapKeys(byVariable))),
			})
			continue
		}
		out[k] = value
	}
	return out, problems
}

func variable(key string) string {
	return EnvPrefix + strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToUpper(key))
}
