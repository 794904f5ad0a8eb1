package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Setting is one value of the effective configuration.
type Setting struct {
	// Scope is "", "sources/NAME" or "sinks/NAME".
	Scope string
	Key   Key
	// Name is the key as it was written, with alias or topic filled in.
	Name, Value string
	// Raw is the value before secrets were filled in.
	Raw string
}

// Effective returns what was configured, checked against the key table one by
// one; defaults are not filled in.
func Effective(in Input) ([]Setting, []Problem) { return read(in).effective(in) }

func (l *layers) effective(in Input) ([]Setting, []Problem) {
	getenv := func(name string) (string, bool) {
		for _, pair := range slices.Backward(in.Environ) {
			if k, v, _ := strings.Cut(pair, "="); k == name {
				return v, true
			}
		}
		return "", false
	}
	problems := l.problems
	loaded, keys := l.values(), Keys()
	var out []Setting
	for _, where := range slices.Sorted(maps.Keys(loaded)) {
		s, p := judge(keys, where, loaded[where], getenv)
		if p.Problem == "" {
			out = append(out, s)
			continue
		}
		p.Key = strings.ReplaceAll(where, delimiter, ".")
		meant, _, _ := match(keys, p.Suggestion)
		if p.Value != "" && (s.hidden() || meant.Secret) {
			p.Value = "***"
		}
		p.Value = userInfo.ReplaceAllString(p.Value, "//***@") // a URL with a password in it
		problems = append(problems, p)
	}
	return out, problems
}

// userInfo is what stands before the host of a URL.
var userInfo = regexp.MustCompile(`//.*@`)

// pipelineName is what a pipeline may be called: the name is part of cursors,
// transactional ids, metrics and actors.
var pipelineName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}$`)

// judge checks one value against the key table.
func judge(keys []Key, where string, v any, getenv func(string) (string, bool)) (Setting, Problem) {
	scope, name := splitScope(where)
	k, _, ok := match(keys, name)
	s := Setting{Scope: scope, Key: k, Name: name}
	kind, pipeline, _ := strings.Cut(scope, delimiter)
	value, err := toText(v)
	p := Problem{Value: value, Allowed: k.Valid}
	switch {
	case !ok:
		p.Problem, p.Allowed, p.Suggestion = "unknown key", "", suggest(keys, name)
	case scope != "" && !pipelineName.MatchString(pipeline):
		p.Problem, p.Allowed = fmt.Sprintf("%.60q cannot be the name of a pipeline", pipeline), "letters, digits, dots, - and _, at most 100"
	case kind == "targets":
		p.Problem = "known, but not built yet: targets of their own"
	case !k.Built:
		p.Problem = "known, but not built yet"
	case err != nil:
		p.Problem = err.Error()
	case k.Global && scope != "":
		p.Problem = "belongs to the process, not to a pipeline"
	case k.Side == SourceSide && kind == "sinks", k.Side == SinkSide && kind == "sources":
		p.Problem = fmt.Sprintf("a key of %ss", k.Side)
	default:
		s.Raw = value
		if s.Value, err = resolve(value, getenv); err != nil {
			p.Problem = err.Error()
		} else if p.Problem = k.check(s.Value); p.Problem != "" && s.Value != value {
			p.Problem = "what the reference stands for is not allowed" // it may be a secret
		}
	}
	return s, p
}

// suggest returns the known key that is nearest to an unknown one, with its alias or topic filled in.
func suggest(keys []Key, name string) string {
	var names []string
	for _, k := range keys {
		prefix, suffix, pattern := strings.Cut(k.Name, "<")
		if rest, ok := strings.CutPrefix(name, prefix); pattern && ok {
			part, _, _ := strings.Cut(rest, ".")
			_, suffix, _ = strings.Cut(suffix, ">")
			names = append(names, prefix+part+suffix)
			continue
		}
		names = append(names, k.Name)
	}
	if first, rest, ok := strings.Cut(name, "."); ok {
		for _, scope := range []string{"sources", "sinks", "targets"} {
			if distance(first, scope, 2) < 2 {
				names = append(names, scope+"."+rest)
			}
		}
	}
	return nearest(name, names)
}

func splitScope(where string) (scope, name string) {
	if i := strings.LastIndex(where, delimiter); i >= 0 {
		return where[:i], where[i+1:]
	}
	return "", where
}

// toText returns a value as it would stand in a flat file; lists are joined by commas.
func toText(v any) (string, error) {
	switch x := v.(type) {
	case nil:
		return "", nil
	case []any:
		list := make([]string, len(x))
		for i, e := range x {
			s, err := toText(e)
			if err != nil {
				return "", err
			}
			list[i] = s
		}
		return strings.Join(list, ","), nil
	case map[string]any:
		return "", fmt.Errorf("a value was expected, not a group of keys")
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64), nil
	case time.Time: // YAML reads an unquoted date as a time
		return x.UTC().Format(time.DateTime), nil
	case interface {
		AsTime(*time.Location) time.Time
	}: // TOML's times without a zone
		return x.AsTime(time.UTC).Format(time.DateTime), nil
	}
	return fmt.Sprint(v), nil
}

// Shown returns the value as it may be printed: secrets, and settings that may
// carry them, are replaced (Invariant 8).
func (s Setting) Shown() string {
	switch {
	case s.hidden() && reference.ReplaceAllString(s.Raw, "") != "":
		return "***"
	case s.Raw != s.Value:
		return s.Raw // a reference says where the value comes from
	}
	return s.Value
}

// hidden says whether the value may be a secret: by its key, or by its name where
// the key table does not know (Kafka settings, misspelt keys).
func (s Setting) hidden() bool {
	if s.Key.Secret {
		return true
	}
	if s.Key.Name != "" && s.Key.Type != Any {
		return false
	}
	name := strings.ToLower(s.Name)
	return slices.ContainsFunc([]string{"pass", "pwd", "secret", "jaas", "keystore.key", "ssl.key", "token", "user.info", "credential"}, func(word string) bool {
		return strings.Contains(name, word)
	})
}
