package config

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var reference = regexp.MustCompile(`\$\{(env|file|dir):([^}]*)\}`)

// maxSecretFile bounds a file that a reference names.
const maxSecretFile = 1 << 20

// resolve replaces ${env:NAME}, ${file:PATH:KEY} (a properties file) and
// ${dir:PATH:FILE} (a file's content) in a value, as Kafka's config providers do.
func resolve(v string, getenv func(string) (string, bool)) (string, error) {
	var failed error
	out := reference.ReplaceAllStringFunc(v, func(ref string) string {
		m := reference.FindStringSubmatch(ref)
		s, err := lookUp(m[1], m[2], getenv)
		if err != nil && failed == nil {
			failed = fmt.Errorf("resolving ${%s:%s}: %w", m[1], m[2], err)
		}
		return s
	})
	return out, failed
}

func lookUp(kind, what string, getenv func(string) (string, bool)) (string, error) {
	if kind == "env" {
		s, ok := getenv(what)
		if !ok {
			return "", fmt.Errorf("the environment has no %s", what)
		}
		return s, nil
	}
	i := strings.LastIndexByte(what, ':')
	if i < 0 {
		return "", fmt.Errorf("want ${%s:PATH:NAME}", kind)
	}
	path, name := what[:i], what[i+1:]
	if kind == "dir" {
		path = filepath.Join(path, filepath.Base(name))
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("looking for the file: %w", err)
	}
	if info.Size() > maxSecretFile {
		return "", fmt.Errorf("%s has %d bytes, the limit is %d", path, info.Size(), maxSecretFile)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading the file: %w", err)
	}
	if kind == "dir" {
		return strings.TrimRight(string(raw), "\r\n"), nil
	}
	m, err := parseProperties(raw)
	if err != nil {
		return "", err
	}
	s, ok := m[name].(string)
	if !ok {
		return "", fmt.Errorf("%s has no key %s", path, name)
	}
	return s, nil
}
