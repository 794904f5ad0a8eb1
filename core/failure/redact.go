package failure

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// maxExcerpt is the size to which excerpts of answers are cut (failures.md section 7).
const maxExcerpt = 512

var credentials = regexp.MustCompile(`(?i)((?:authorization|cookie|set-cookie|x-sn-apikey|proxy-authorization)["']?\s*[:=]\s*)[^\r\n"'<]+|` +
	`((?:password|passwd|secret|client_secret|access_token|refresh_token|id_token|token|assertion)["']?\s*[:=]\s*["']?)[^\s"'&<,;}]+|` +
	`((?:basic|bearer)\s+)[a-z0-9+/_.~=-]{6,}`)

// Excerpt returns what of a body may be shown: 512 bytes at most, cut at a
// character, without control characters, without anything that looks like a credential.
func Excerpt(body []byte) string {
	more := len(body) > maxExcerpt
	if more {
		body = body[:maxExcerpt]
		for len(body) > 0 && !utf8.Valid(body[max(0, len(body)-utf8.UTFMax):]) {
			if r, n := utf8.DecodeLastRune(body); r != utf8.RuneError || n > 1 {
				break
			}
			body = body[:len(body)-1]
		}
	}
	s := strings.ToValidUTF8(string(body), "�")
	s = credentials.ReplaceAllString(s, "$1$2$3***")
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }), " ")
	if more {
		s += "…"
	}
	return s
}

// Redactor removes known secrets from texts, whatever form they stand in.
type Redactor struct {
	secrets []string
}

// NewRedactor returns a redactor for the given secrets; short ones (under four
// bytes) are left out, they would blank ordinary text.
func NewRedactor(secrets ...string) *Redactor {
	r := &Redactor{}
	for _, s := range secrets {
		if len(s) >= 4 {
			r.secrets = append(r.secrets, s)
		}
	}
	return r
}

// Text returns s without the secrets.
func (r *Redactor) Text(s string) string {
	for _, secret := range r.secrets {
		s = strings.ReplaceAll(s, secret, "***")
	}
	return s
}
