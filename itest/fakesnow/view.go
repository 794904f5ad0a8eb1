package fakesnow

import (
	"net/url"
	"strings"
	"time"
	"unicode/utf8"
)

// view is how rows are shown to one request: which fields, with which values.
type view struct {
	in      *Instance
	t       *table
	user    *user
	base    string // scheme://host of links
	display string // "false", "true", "all"
	noLink  bool
	fields  []viewField
	live    bool   // reads other rows: must be encoded under the lock, never cached
	key     string // identifies the view in the block cache
	classes map[*table][]int
	zone    *time.Location
}

type viewField struct {
	prefix  []byte // `"name":`
	name    string
	col     *column
	get     *getter // dot-walked only
	journal bool
	link    []byte // `{"link":"base/api/now/table/x/`, references only
}

// newView compiles a view. fields is sysparm_fields, "" for all. The caller holds in.mu for reading.
func (in *Instance) newView(t *table, u *user, base, fields, display string, noLink bool) *view {
	v := &view{in: in, t: t, user: u, base: base, display: display, noLink: noLink, classes: map[*table][]int{}}
	if display != "true" && display != "all" {
		v.display = "false"
	}
	v.live = v.display != "false"
	hidden := ""
	add := func(name string, col *column, get *getter) {
		f := viewField{name: name, col: col, get: get, journal: col.isJournal()}
		f.prefix = append(appendJSON(nil, name), ':')
		if col.isReference() {
			f.link = []byte(`{"link":` + strings.TrimSuffix(string(appendJSON(nil, base+"/api/now/table/"+col.target()+"/")), `"`))
		}
		v.fields = append(v.fields, f)
	}
	if fields == "" {
		for _, c := range t.lay.cols {
			if t.view && strings.HasPrefix(c.name, "sys_") {
				continue
			}
			if in.isHidden(u, t, c.name) {
				hidden += c.name + ","
				continue
			}
			add(c.name, c, nil)
		}
	} else {
		seen := map[string]bool{}
		for _, name := range strings.Split(fields, ",") {
			name = strings.TrimSpace(name)
			get := in.getter(t, u, name)
			if get == nil || seen[name] {
				continue
			}
			seen[name] = true
			if strings.Contains(name, ".") {
				v.live = true
				add(name, get.col, get)
			} else {
				add(name, get.col, nil)
			}
		}
		hidden = fields
	}
	v.key = strings.Join([]string{t.name, base, fields, boolText(noLink), hidden, u.hiddenKey, itoa(int(in.schemaGen))}, "\x00")
	v.zone = u.location(in)
	return v
}

// bind finds the positions of the fields in the classes of the rows, so that encoding needs no lock.
func (v *view) bind(rows []*row) {
	for _, r := range rows {
		if _, done := v.classes[r.class]; done {
			continue
		}
		pos := make([]int, len(v.fields))
		for i, f := range v.fields {
			pos[i] = -1
			if f.get != nil {
				continue
			}
			if p, ok := r.class.lay.pos[f.name]; ok && (r.class == v.t || !v.in.isHidden(v.user, r.class, f.name)) {
				pos[i] = p
			}
		}
		v.classes[r.class] = pos
	}
}

// encode appends one row as a JSON object.
func (v *view) encode(b []byte, r *row) []byte {
	pos := v.classes[r.class]
	b = append(b, '{')
	first := true
	for i := range v.fields {
		f := &v.fields[i]
		var val string
		switch {
		case f.get != nil:
			val = f.get.read(r)
		case pos[i] < 0:
			continue
		case f.journal:
		default:
			val = r.at(pos[i])
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, f.prefix...)
		switch {
		case v.display != "false":
			b = v.appendDisplay(b, f, val)
		case f.link != nil && val != "" && !v.noLink:
			b = append(b, f.link...)
			b = appendEscaped(b, url.PathEscape(val))
			b = append(b, `","value":`...)
			b = appendJSON(b, val)
			b = append(b, '}')
		default:
			b = appendJSON(b, val)
		}
	}
	return append(b, '}')
}

// appendDisplay writes a value for display_value=true or all. The caller holds in.mu for reading.
func (v *view) appendDisplay(b []byte, f *viewField, val string) []byte {
	shown, known := v.in.display(f.col, val, v.zone)
	text := func(b []byte) []byte {
		if !known {
			return append(b, "null"...)
		}
		return appendJSON(b, shown)
	}
	link := func(b []byte) []byte {
		b = append(b, `"link":`...)
		return appendJSON(b, v.base+"/api/now/table/"+f.col.target()+"/"+url.PathEscape(val))
	}
	isRef := f.link != nil && val != "" && !v.noLink
	if v.display == "all" {
		b = append(b, `{"display_value":`...)
		b = text(b)
		b = append(b, `,"value":`...)
		b = appendJSON(b, val)
		if isRef {
			b = link(append(b, ','))
		}
		return append(b, '}')
	}
	if isRef {
		b = append(b, `{"display_value":`...)
		b = text(b)
		b = link(append(b, ','))
		return append(b, '}')
	}
	return text(b)
}

// display is what a user sees of a value; known is false where the instance answers null.
func (in *Instance) display(c *column, val string, zone *time.Location) (shown string, known bool) {
	switch {
	case c.isReference():
		if val == "" {
			return "", true
		}
		target := c.target()
		if text, ok := in.displays[target+"/"+val]; ok {
			return text, true
		}
		if r := in.find(in.tables[target], val); r != nil {
			for _, name := range []string{"number", "name", "label", "user_name"} {
				if text := r.get(name); text != "" {
					return text, true
				}
			}
		}
		return val, true
	case c.kind == "due_date" && val == "":
		return "UNKNOWN", true
	case c.isTime() && val != "":
		if at, err := time.Parse(Stamp, val); err == nil && zone != nil {
			return at.In(zone).Format(Stamp), true
		}
	case c.kind == "sys_class_name":
		if ct := in.tables[val]; ct != nil {
			return ct.label, true
		}
	case choiceLabels[c.name] != nil:
		if val == "" {
			return "", false
		}
		if text, ok := choiceLabels[c.name][val]; ok {
			return text, true
		}
	case strings.HasPrefix(c.choice, "dropdown") && val == "":
		return "", false
	}
	return val, true
}

const hexDigits = "0123456789abcdef"

// appendJSON appends s as a JSON string; bytes that are not UTF-8 become U+FFFD.
func appendJSON(b []byte, s string) []byte {
	if s == "" {
		return append(b, '"', '"')
	}
	b = append(b, '"')
	b = appendEscaped(b, s)
	return append(b, '"')
}

// special marks the bytes that a JSON string cannot hold as they are, or that need a closer look.
var special = func() (t [256]bool) {
	for c := range t {
		t[c] = c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf
	}
	return t
}()

func appendEscaped(b []byte, s string) []byte {
	clean := 0
	for clean < len(s) && !special[s[clean]] {
		clean++
	}
	if clean == len(s) {
		return append(b, s...)
	}
	start := 0
	for i := clean; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			if r, size := utf8.DecodeRuneInString(s[i:]); r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
			b = append(append(b, s[start:i]...), "\ufffd"...)
			i++
			start = i
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		b = append(b, s[start:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	return append(b, s[start:]...)
}
