package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzLoad: whatever a file holds, loading ends with a valid configuration or
// with problems, the same ones each time, and no secret among them.
func FuzzLoad(f *testing.F) {
	for name, text := range notations {
		for i, ext := range []string{".yaml", ".toml", ".json", ".properties"} {
			f.Add(uint8(i), text)
			if strings.HasSuffix(name, ext) {
				f.Add(uint8(i), strings.Replace(text, "snow.", "snow", 1))
			}
		}
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, form uint8, text string) {
		p := filepath.Join(dir, "f"+[]string{".yaml", ".toml", ".json", ".properties"}[form%4])
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		in := Input{Files: []string{p}}
		cfg, err := Load(in)
		_, again := Load(in)
		if err == nil {
			if len(cfg.Sources) == 0 || again != nil {
				t.Fatalf("%+v, then %v", cfg, again)
			}
			for _, s := range cfg.Sources {
				if s.Instance.URL == nil || s.Instance.Password == "" || len(s.Tables) == 0 || s.Kafka["bootstrap.servers"] == "" {
					t.Fatalf("valid without what it needs: %+v", s)
				}
			}
			return
		}
		wrong, ok := errors.AsType[*Error](err)
		if !ok || len(wrong.Problems) == 0 {
			t.Fatalf("%T: %v", err, err)
		}
		if again == nil || again.Error() != err.Error() {
			t.Fatalf("two loads differ:\n%v\n%v", err, again)
		}
	})
}

// FuzzProperties: no line is lost, and an error names one.
func FuzzProperties(f *testing.F) {
	for _, s := range []string{"a=b", "a:b\nc d", "# x\n! y\n\\u0061 = \\t\\", "a\\\n  b=c", "a=\\ud83d\\ude00", "\ufeffa=1", "a=1\r\nb=2\rc=3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parseProperties([]byte(text))
		if err != nil && !strings.HasPrefix(err.Error(), "reading properties: ") {
			t.Fatal(err)
		}
		if len(m) > len(text) {
			t.Fatalf("%d keys in %d bytes", len(m), len(text))
		}
	})
}

// TestProperties holds the examples of java.util.Properties.load.
func TestProperties(t *testing.T) {
	for text, want := range map[string]map[string]any{
		"Truth = Beauty\n  Truth2:Beauty\nTruth3\t\t:Beauty":          {"Truth": "Beauty", "Truth2": "Beauty", "Truth3": "Beauty"},
		"fruits  apple, banana, pear, \\\n   cantaloupe, \\\n   kiwi": {"fruits": "apple, banana, pear, cantaloupe, kiwi"},
		"cheeses":               {"cheeses": ""},
		"# a=1\n! b=2\n\n":      {},
		"a\\:b\\=c\\ d = e":     {"a:b=c d": "e"},
		"a = b \\\\\nc = d":     {"a": `b \`, "c": "d"},
		"path=C:\\\\dir\\u00e9": {"path": `C:\diré`},
		"smile=\\uD83D\\uDE00":  {"smile": "😀"},
		"\ufeffa==b\r\nc::d\r":  {"a": "=b", "c": ":d"},
	} {
		got, err := parseProperties([]byte(text))
		if err != nil || len(got) != len(want) {
			t.Errorf("%q: %v %v", text, got, err)
		}
		for k, v := range want {
			if got[k] != v {
				t.Errorf("%q: %q is %q, want %q", text, k, got[k], v)
			}
		}
	}
	for _, text := range []string{"a=1\na=2", "a=\\u12", "a=\\uzzzz", "a=\xff"} {
		if got, err := parseProperties([]byte(text)); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}
