package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// parseProperties reads Java properties (java.util.Properties.load) in UTF-8: a
// line per key, continued by a backslash at its end, comments behind # or !. A
// key that is given twice is an error; Java would keep the last.
func parseProperties(raw []byte) (map[string]any, error) {
	if !utf8.Valid(raw) {
		return nil, errors.New("reading properties: the file is not UTF-8")
	}
	text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.TrimPrefix(string(raw), "\ufeff"))
	m := map[string]any{}
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		at := i + 1
		line := strings.TrimLeft(lines[i], " \t\f")
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		for continued(line) {
			line = line[:len(line)-1]
			if i++; i < len(lines) {
				line += strings.TrimLeft(lines[i], " \t\f")
			}
		}
		key, value := splitProperty(line)
		key, err := unescape(key)
		if err != nil {
			return nil, fmt.Errorf("reading properties: line %d: %w", at, err)
		}
		if value, err = unescape(value); err != nil {
			return nil, fmt.Errorf("reading properties: line %d: %w", at, err)
		}
		if _, twice := m[key]; twice {
			return nil, fmt.Errorf("reading properties: line %d: %s: given twice in one file", at, key)
		}
		m[key] = value
	}
	return m, nil
}

// continued says whether a line ends with a backslash that is not escaped itself.
func continued(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

// splitProperty cuts a line at the first =, : or blank that is not escaped.
func splitProperty(line string) (key, value string) {
	end := 0
	for end < len(line) && !strings.ContainsRune("=: \t\f", rune(line[end])) {
		if line[end] == '\\' {
			end++
		}
		end++
	}
	end = min(end, len(line))
	value = strings.TrimLeft(line[end:], " \t\f")
	if value != "" && (value[0] == '=' || value[0] == ':') {
		value = strings.TrimLeft(value[1:], " \t\f")
	}
	return line[:end], value
}

func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 't':
			b.WriteByte('\t')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 'f':
			b.WriteByte('\f')
		case 'u':
			r, err := hex4(s[i+1:])
			if err != nil {
				return "", err
			}
			i += 4
			if utf16.IsSurrogate(r) && strings.HasPrefix(s[i+1:], `\u`) { // the other half of a pair
				low, err := hex4(s[i+3:])
				if err != nil {
					return "", err
				}
				r = utf16.DecodeRune(r, low)
				i += 6
			}
			b.WriteRune(r)
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), nil
}

func hex4(s string) (rune, error) {
	if len(s) < 4 {
		return 0, errors.New(`\u needs four hex digits`)
	}
	n, err := strconv.ParseUint(s[:4], 16, 16)
	if err != nil {
		return 0, fmt.Errorf(`\u%s: four hex digits are needed`, s[:4])
	}
	return rune(n), nil
}
