package config

import (
	"fmt"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"snowmelt/core/cursor"
)

// Side says which pipelines a key belongs to.
type Side string

// The sides.
const (
	Both       Side = "both"
	SourceSide Side = "source"
	SinkSide   Side = "sink"
)

// Type is the type of a key's value.
type Type string

// The types. A list is written "a,b" or [a, b]; Any is a name of its own under a prefix.
const (
	String    Type = "string"
	Int       Type = "int"
	Long      Type = "long"
	Float     Type = "float"
	Bool      Type = "bool"
	Enum      Type = "enum"
	List      Type = "list"
	Secret    Type = "secret"
	Path      Type = "path"
	URL       Type = "URL"
	Regex     Type = "regex"
	Time      Type = "timestamp"
	Any       Type = "any"
	Structure Type = "structure"
)

// Key is one setting, declared once: loading, validation, the printed reference
// and `snowmelt config keys` read it here.
type Key struct {
	Name    string `json:"key"`
	Side    Side   `json:"side"`
	Type    Type   `json:"type"`
	Default string `json:"default"`
	// Valid says in words what is allowed.
	Valid  string `json:"valid"`
	Secret bool   `json:"secret"`
	Doc    string `json:"doc"`
	Since  string `json:"since"`
	// Built is false for a key that is known and does nothing yet: it is refused when set.
	Built bool `json:"built"`
	// Global is true for keys of the process, which no pipeline may set.
	Global bool `json:"global"`

	oneOf    []string
	min, max float64
	bounded  bool
	pattern  *regexp.Regexp
	required bool
	address  bool     // the value is a URL
	brokers  bool     // -1 is allowed, too
	builtIn  []string // of oneOf, those that are built; nil = all
}

// option changes a key while it is declared.
type option func(*Key)

func def(s string) option { return func(k *Key) { k.Default = s } }

func valid(s string) option { return func(k *Key) { k.Valid = s } }

func oneOf(values ...string) option {
	return func(k *Key) { k.oneOf, k.Valid = values, strings.Join(values, ", ") }
}

func between(lo, hi float64) option {
	return func(k *Key) {
		k.min, k.max, k.bounded = lo, hi, true
		k.Valid = fmt.Sprintf("%s to %s", number(lo), number(hi))
		if hi >= 1<<62 {
			k.Valid = "at least " + number(lo)
		}
	}
}

// orDefault allows -1, the broker's default, and lo to hi.
func orDefault(lo, hi float64) option {
	return func(k *Key) {
		k.min, k.max, k.bounded, k.brokers = lo, hi, true, true
		k.Valid = fmt.Sprintf("-1, or %s to %s", number(lo), number(hi))
	}
}

func atLeast(n float64) option { return between(n, 1<<62) }

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func matching(re, words string) option {
	return func(k *Key) { k.pattern, k.Valid = regexp.MustCompile(`^(?:`+re+`)$`), words }
}

func webAddress(k *Key) { k.address, k.Valid = true, "an http(s) URL" }

func required(k *Key) { k.required, k.Default = true, "(required)" }

func planned(k *Key) { k.Built = false }

// only names the values of an enum that are built; the others are refused when set.
func only(values ...string) option { return func(k *Key) { k.builtIn = values } }

func global(k *Key) { k.Global = true }

func key(name string, side Side, t Type, doc string, opts ...option) Key {
	k := Key{Name: name, Side: side, Type: t, Doc: doc, Since: "0.1.0", Built: true, Secret: t == Secret}
	if t == Bool {
		k.Valid = "true, false"
	}
	if t == URL {
		webAddress(&k)
	}
	for _, o := range opts {
		o(&k)
	}
	return k
}

// Keys returns the key table in the order of its declaration.
func Keys() []Key {
	return slices.Concat(instanceKeys, sourceKeys, tableKeys, sinkKeys, formatKeys, kafkaKeys, failureKeys, engineKeys)
}

// match finds the key that a name is, exact names before patterns: a <part>
// stands for what lies between, a trailing * for what follows.
func match(keys []Key, name string) (Key, string, bool) {
	for _, k := range keys {
		if k.Name == name {
			return k, "", true
		}
	}
	var best Key
	bestPart, bestLen := "", -1
	for _, k := range keys {
		var prefix, suffix string
		if i := strings.IndexByte(k.Name, '<'); i >= 0 {
			prefix = k.Name[:i]
			suffix = k.Name[strings.IndexByte(k.Name, '>')+1:]
			if suffix == ".<setting>" {
				suffix = ""
			}
		} else if p, ok := strings.CutSuffix(k.Name, "*"); ok {
			prefix = p
		} else {
			continue
		}
		part, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		if part, ok = strings.CutSuffix(part, suffix); ok && part != "" && len(prefix)+len(suffix) > bestLen {
			best, bestPart, bestLen = k, part, len(prefix)+len(suffix)
		}
	}
	return best, bestPart, bestLen >= 0
}

// check says what is wrong with a value, "" if nothing is.
func (k Key) check(v string) string {
	switch k.Type {
	case Int, Long, Float:
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || math.IsNaN(f) || k.Type != Float && f != math.Trunc(f) {
			return "not a number"
		}
		if k.brokers && f == -1 {
			return ""
		}
		if k.bounded && (f < k.min || f > k.max) || k.Type == Int && math.Abs(f) > math.MaxInt32 || math.Abs(f) > 1<<62 {
			return "out of bounds"
		}
	case Bool:
		if v != "true" && v != "false" {
			return "neither true nor false"
		}
	case Enum:
		if !slices.Contains(k.oneOf, v) {
			return "not one of the values allowed"
		}
		if k.builtIn != nil && !slices.Contains(k.builtIn, v) {
			return "known, but not built yet"
		}
	case Regex:
		if _, err := regexp.Compile(v); err != nil {
			return "not a regular expression"
		}
	case Time:
		if _, err := cursor.ParseTimestamp(v); err != nil {
			return "not a time of the form yyyy-MM-dd HH:mm:ss (UTC)"
		}
	case String, List, Secret, Path, URL, Any, Structure:
	}
	if k.address {
		u, err := url.Parse(v)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return "not an http(s) URL with a host"
		}
		if u.User != nil {
			return "credentials do not belong into a URL"
		}
	}
	if k.pattern != nil {
		for _, part := range parts(k, v) {
			if !k.pattern.MatchString(part) {
				return fmt.Sprintf("%.60q does not fit", part)
			}
		}
	}
	return ""
}

func parts(k Key, v string) []string {
	if k.Type != List {
		return []string{v}
	}
	return splitList(v)
}

func splitList(v string) []string {
	var out []string
	for part := range strings.SplitSeq(v, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}
