package fakesnow

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// column is a field of a table as sys_dictionary describes it.
type column struct {
	name, kind, label, reference, def, choice string
	maxLen                                    int
	readOnly, mandatory                       bool
}

// layout is the immutable list of a table's columns, inherited ones included. It only grows: a new
// layout extends the old one, so positions in rows stay valid.
type layout struct {
	cols []*column
	pos  map[string]int
}

func (l *layout) with(cols ...*column) *layout {
	next := &layout{cols: append([]*column(nil), l.cols...), pos: make(map[string]int, len(l.cols)+len(cols))}
	for k, v := range l.pos {
		next.pos[k] = v
	}
	for _, c := range cols {
		if _, dup := next.pos[c.name]; !dup {
			next.pos[c.name] = len(next.cols)
			next.cols = append(next.cols, c)
		}
	}
	return next
}

func (l *layout) col(name string) *column {
	if i, ok := l.pos[name]; ok {
		return l.cols[i]
	}
	return nil
}

// table is a table of the hierarchy. Its indexes hold its own rows and those of its subclasses.
type table struct {
	name, label, prefix string
	view                bool // a database view: read only, without system columns
	parent              *table
	kids                []*table
	lay                 *layout
	counter             int // last number given out
	count               int // rows, subclasses included
	ids                 map[string]*row
	idx                 [indexKinds]*tree
	comp                *computed // rows computed from their number instead of stored
}

func (t *table) root() *table {
	for t.parent != nil {
		t = t.parent
	}
	return t
}

// is tells whether t is anc or one of its subclasses.
func (t *table) is(anc *table) bool {
	for ; t != nil; t = t.parent {
		if t == anc {
			return true
		}
	}
	return false
}

// extend adds columns to t and its subclasses.
func (t *table) extend(cols ...*column) {
	t.lay = t.lay.with(cols...)
	for _, k := range t.kids {
		k.extend(cols...)
	}
}

type dictionaryFile struct {
	Tables []struct {
		Name   string `json:"name"`
		Label  string `json:"label"`
		Super  string `json:"super_class"`
		Audit  string `json:"audit"`
		Prefix string `json:"number_prefix"`
	} `json:"tables"`
	Columns []struct {
		Table     string `json:"name"`
		Element   string `json:"element"`
		Kind      string `json:"internal_type"`
		Label     string `json:"column_label"`
		MaxLength string `json:"max_length"`
		Reference string `json:"reference"`
		Mandatory string `json:"mandatory"`
		ReadOnly  string `json:"read_only"`
		Default   string `json:"default_value"`
		Choice    string `json:"choice"`
	} `json:"columns"`
}

// CheckDictionary reads a dictionary file as New would and returns what is wrong with it.
func CheckDictionary(path string) error {
	_, err := readDictionary(path)
	return err
}

func readDictionary(path string) (*dictionaryFile, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the dictionary: %w", err)
	}
	var d dictionaryFile
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, fmt.Errorf("parsing the dictionary %s: %w", path, err)
	}
	if len(d.Tables) == 0 || len(d.Columns) == 0 {
		return nil, fmt.Errorf("parsing the dictionary %s: it names no tables or no columns", path)
	}
	return &d, nil
}

// blueprint is a table before it is linked into the hierarchy.
type blueprint struct {
	name, label, super, prefix string
	cols                       []*column
}

// loadSchema builds the tables from the built-in list and, over it, the dictionary file.
func (in *Instance) loadSchema(path string) error {
	prints := map[string]*blueprint{}
	var order []string
	add := func(b *blueprint) *blueprint {
		if old := prints[b.name]; old != nil {
			return old
		}
		prints[b.name] = b
		order = append(order, b.name)
		return b
	}
	if path != "" {
		d, err := readDictionary(path)
		if err != nil {
			return err
		}
		for _, t := range d.Tables {
			add(&blueprint{name: t.Name, label: t.Label, super: t.Super, prefix: t.Prefix})
		}
		for _, c := range d.Columns {
			b := add(&blueprint{name: c.Table})
			col := &column{
				name: c.Element, kind: c.Kind, label: c.Label, reference: c.Reference, def: c.Default,
				choice: c.Choice, readOnly: c.ReadOnly == "true", mandatory: c.Mandatory == "true",
			}
			_, _ = fmt.Sscan(c.MaxLength, &col.maxLen)
			b.cols = append(b.cols, col)
		}
	}
	for _, b := range builtinTables() {
		have := prints[b.name]
		switch {
		case have == nil:
			add(b)
		case len(have.cols) == 0:
			have.cols = b.cols
		}
	}
	for _, name := range order {
		in.link(prints, name)
	}
	for _, t := range in.sortedTables() {
		in.describe(t)
	}
	return nil
}

// link creates the table of a blueprint after its parent.
func (in *Instance) link(prints map[string]*blueprint, name string) *table {
	if t := in.tables[name]; t != nil {
		return t
	}
	b := prints[name]
	if b == nil {
		b = &blueprint{name: name}
	}
	t := &table{name: b.name, label: b.label, prefix: b.prefix, lay: &layout{}, counter: 10000}
	if t.label == "" {
		t.label = title(name)
	}
	if b.super != "" && b.super != name {
		t.parent = in.link(prints, b.super)
		t.parent.kids = append(t.parent.kids, t)
		t.lay = t.parent.lay
	} else {
		t.ids = map[string]*row{}
	}
	t.lay = t.lay.with(b.cols...)
	t.lay = t.lay.with(systemColumns(t)...)
	in.tables[name] = t
	return t
}

// ensureTable returns the table, creating an unknown one with system columns only.
func (in *Instance) ensureTable(name string) *table {
	if t := in.tables[name]; t != nil {
		return t
	}
	t := in.link(map[string]*blueprint{}, name)
	in.schemaGen++
	in.describe(t)
	return t
}

// AddTable creates a table below a parent ("" for none) with columns written "name" or "name:type" or
// "name:reference:table"; on an existing table it adds the columns.
func (in *Instance) AddTable(name, parent string, columns ...string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	cols := parseColumns(strings.Join(columns, " "))
	in.schemaGen++
	if t := in.tables[name]; t != nil {
		t.extend(cols...)
		in.describeColumns(t, cols)
		return
	}
	if parent != "" {
		in.ensureTable(parent)
	}
	t := in.link(map[string]*blueprint{name: {name: name, super: parent, cols: cols}}, name)
	in.describe(t)
}

// AddView creates a database view with prefixed columns such as "inc_sys_id:GUID" (the syntax of
// AddTable). It has no sys_id or other system columns of its own, so an id may repeat, and it is read
// only. Fill it with Insert.
func (in *Instance) AddView(name string, columns ...string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.schemaGen++
	in.link(map[string]*blueprint{name: {name: name, cols: parseColumns(strings.Join(columns, " "))}}, name).view = true
}

func systemColumns(t *table) []*column {
	stamps := "sys_id:GUID sys_created_on:glide_date_time sys_created_by sys_updated_on:glide_date_time sys_updated_by sys_mod_count:integer sys_tags"
	switch t.name {
	case "sys_audit_delete", "sys_audit", "sys_journal_field":
		stamps = "sys_id:GUID sys_created_on:glide_date_time sys_created_by"
	}
	if t.lay.col("sys_mod_count") != nil { // a dictionary that lists the stamps lists all columns
		stamps = ""
	}
	return parseColumns(stamps)
}

// parseColumns reads a blank separated list of name[:type[:reference]][=default].
func parseColumns(list string) []*column {
	var cols []*column
	for _, item := range strings.Fields(list) {
		c := &column{kind: "string"}
		item, c.def, _ = strings.Cut(item, "=")
		c.def = strings.ReplaceAll(c.def, "_", " ")
		parts := strings.Split(item, ":")
		c.name, c.label = parts[0], title(parts[0])
		if len(parts) > 1 && parts[1] != "" {
			c.kind = parts[1]
		}
		if len(parts) > 2 {
			c.reference = parts[2]
		}
		if c.kind == "choice" {
			c.kind, c.choice = "integer", "dropdown_without_none"
		}
		c.readOnly = strings.HasPrefix(c.name, "sys_")
		cols = append(cols, c)
	}
	return cols
}

func title(name string) string {
	words := strings.Split(strings.TrimPrefix(strings.TrimPrefix(name, "sys_"), "u_"), "_")
	for i, w := range words {
		if w != "" {
			words[i] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, " ")
}

func (c *column) isJournal() bool { return strings.HasPrefix(c.kind, "journal") }
func (c *column) isReference() bool {
	return c.kind == "reference" || c.kind == "domain_id"
}

func (c *column) isNumber() bool {
	switch c.kind {
	case "integer", "decimal", "float", "longint", "percent_complete":
		return true
	}
	return false
}

func (c *column) isTime() bool {
	return c.kind == "glide_date_time" || c.kind == "due_date"
}

// target is the table that a reference points to.
func (c *column) target() string {
	if c.kind == "domain_id" {
		return "sys_user_group"
	}
	return c.reference
}
