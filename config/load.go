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
	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"
	"github.com/magiconair/properties"
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

// values is a loaded configuration before validation: "snow.url" or "sources/itsm/snow.url" to value.
type values map[string]any

// read loads and merges every layer.
func read(in Input) (values, []Problem) {
	k := koanf.New(delimiter)
	var problems []Problem
	for _, file := range in.Files {
		layer, err := parseFile(file)
		if err == nil && len(layer) == 0 {
			err = errors.New("the file is empty; an empty configuration is never valid")
		}
		if err == nil {
			err = merge(k, layer)
		}
		if err != nil {
			problems = append(problems, Problem{Key: file, Problem: err.Error()})
		}
	}
	env, unknown := fromEnviron(in.Environ)
	problems = append(problems, unknown...)
	for _, layer := range []map[string]any{env, toAny(in.Flags)} {
		if err := merge(k, layer); err != nil {
			problems = append(problems, Problem{Problem: err.Error()})
		}
	}
	return k.All(), problems
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
		m, err = yaml.Parser().Unmarshal(raw)
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

func parseProperties(raw []byte) (map[string]any, error) {
	loader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	p, err := loader.LoadBytes(raw)
	if err != nil {
		return nil, fmt.Errorf("reading properties: %w", err)
	}
	m := map[string]any{}
	for _, name := range p.Keys() {
		m[name], _ = p.Get(name)
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
func merge(k *koanf.Koanf, layer map[string]any) error {
	layer, err := connectLayer(layer)
	if err != nil {
		return err
	}
	flat := map[string]any{}
	if err := flatten(nil, layer, flat); err != nil {
		return err
	}
	if err := k.Load(confmap.Provider(flat, delimiter), nil); err != nil {
		return fmt.Errorf("merging the configuration: %w", err)
	}
	return nil
}

// flatten makes dotted and nested notation the same. A key that stands in one
// layer in both is an error.
func flatten(path []string, in, out map[string]any) error {
	for name, v := range in {
		if strings.Contains(name, delimiter) && len(path) < 2 {
			return fmt.Errorf("%q: names must not contain a slash", name)
		}
		at := append(slices.Clone(path), name)
		m, nested := v.(map[string]any)
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
		if !nested {
			out[where] = v
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
