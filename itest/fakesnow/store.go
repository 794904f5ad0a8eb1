package fakesnow

import (
	"crypto/md5" //nolint:gosec // ids of fake rows, nothing secret
	"encoding/hex"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// row is one record. It never changes: an update puts a new row in its place, so that readers may go
// on encoding what they collected under the lock.
type row struct {
	class            *table
	id, key          string // key is the id as the database collates it
	updated, created string
	vals             []string // by position in class.lay
	// compute gives vals of a computed row, which belongs to one request, on first use.
	compute func() []string
}

func (r *row) at(pos int) string {
	if r.vals == nil && r.compute != nil {
		r.vals = r.compute()
	}
	if pos >= 0 && pos < len(r.vals) {
		return r.vals[pos]
	}
	return ""
}

func (r *row) get(name string) string {
	if pos, ok := r.class.lay.pos[name]; ok {
		return r.at(pos)
	}
	return ""
}

func (r *row) fields() map[string]string {
	m := make(map[string]string, len(r.class.lay.cols))
	for i, c := range r.class.lay.cols {
		m[c.name] = r.at(i)
	}
	return m
}

func itoa(n int) string { return strconv.Itoa(n) }

// hashID is the sys_id of a row that is known by names: 32 hex digits, the same in every run.
func hashID(parts ...string) string {
	sum := md5.Sum([]byte(strings.Join(parts, "\x00"))) //nolint:gosec // see the import
	return hex.EncodeToString(sum[:])
}

// fold is the collation key of an id; equal keys are one id for a unique key.
func (in *Instance) fold(id string) string {
	if in.settings[SettingCollation] == "binary" {
		return id
	}
	return strings.ToLower(id)
}

func (in *Instance) newID() string {
	in.idSeq++
	return hashID("id", strconv.FormatInt(in.opts.Seed, 10), strconv.FormatUint(in.idSeq, 10))
}

// build makes a row of fields over an older row (nil for none); unknown fields become new columns.
func (in *Instance) build(t *table, old *row, fields map[string]string) *row {
	var extra []*column
	for name := range fields {
		if t.lay.col(name) == nil {
			extra = append(extra, &column{name: name, kind: "string", label: title(name)})
		}
	}
	if len(extra) > 0 {
		sort.Slice(extra, func(i, j int) bool { return extra[i].name < extra[j].name })
		t.extend(extra...)
		in.schemaGen++
		in.describeColumns(t, extra)
	}
	r := &row{class: t, vals: make([]string, len(t.lay.cols))}
	if old != nil {
		copy(r.vals, old.vals)
	}
	for name, v := range fields {
		r.vals[t.lay.pos[name]] = v
	}
	in.finish(r)
	return r
}

// finish copies the index keys out of the values.
func (in *Instance) finish(r *row) {
	r.id, r.updated, r.created = r.get("sys_id"), r.get("sys_updated_on"), r.get("sys_created_on")
	r.key = in.fold(r.id)
}

// insert stores a row with its fields as given and returns it. A row with the same id in the
// hierarchy is replaced. The caller holds in.mu and may lose fields: the map is completed in place.
func (in *Instance) insert(t *table, fields map[string]string) *row {
	if fields["sys_id"] == "" {
		fields["sys_id"] = in.newID()
	}
	if sub := fields["sys_class_name"]; sub != "" && sub != t.name {
		if st := in.tables[sub]; st != nil && st.is(t) {
			t = st
		}
	} else if sub == "" && t.lay.col("sys_class_name") != nil {
		fields["sys_class_name"] = t.name
	}
	_, hasUpdated := fields["sys_updated_on"]
	_, hasCreated := fields["sys_created_on"]
	switch {
	case !hasCreated && hasUpdated:
		fields["sys_created_on"] = fields["sys_updated_on"]
	case !hasCreated:
		fields["sys_created_on"] = in.Now().Format(Stamp)
	}
	if !hasUpdated && t.lay.col("sys_updated_on") != nil {
		fields["sys_updated_on"] = fields["sys_created_on"]
	}
	if _, has := fields["sys_mod_count"]; !has && t.lay.col("sys_mod_count") != nil {
		fields["sys_mod_count"] = "0"
	}
	r := in.build(t, nil, fields)
	in.store(r)
	return r
}

// store puts a finished row in place, replacing one with the same id.
func (in *Instance) store(r *row) {
	ids := r.class.root().ids
	if old := ids[r.key]; old != nil {
		in.drop(old)
	}
	ids[r.key] = r
	for a := r.class; a != nil; a = a.parent {
		a.count++
		for _, ix := range a.idx {
			if ix != nil {
				ix.insert(r)
			}
		}
	}
}

func (in *Instance) drop(r *row) {
	delete(r.class.root().ids, r.key)
	for a := r.class; a != nil; a = a.parent {
		a.count--
		for _, ix := range a.idx {
			if ix != nil {
				ix.remove(r)
			}
		}
	}
}

// replace puts next in the place of old; ids and classes are the same.
func (in *Instance) replace(old, next *row) {
	if old.class != next.class || old.key != next.key {
		in.drop(old)
		in.store(next)
		return
	}
	next.class.root().ids[next.key] = next
	for a := next.class; a != nil; a = a.parent {
		for kind, ix := range a.idx {
			switch k := indexKind(kind); {
			case ix == nil:
			case k.time(old) == k.time(next):
				ix.swap(old, next)
			default:
				ix.remove(old)
				ix.insert(next)
			}
		}
	}
}

// find returns the row of a table or its subclasses by id.
func (in *Instance) find(t *table, id string) *row {
	if t == nil {
		return nil
	}
	if t.comp != nil {
		return t.comp.find(id)
	}
	if r := t.root().ids[in.fold(id)]; r != nil && r.class.is(t) {
		return r
	}
	return nil
}

// index returns an index of t, building it on first use. The caller holds in.mu for writing.
func (in *Instance) index(t *table, kind indexKind) *tree {
	if t.idx[kind] == nil {
		rows := make([]*row, 0, t.count)
		for _, r := range t.root().ids {
			if r.class.is(t) {
				rows = append(rows, r)
			}
		}
		slices.SortFunc(rows, func(a, b *row) int {
			if c := strings.Compare(kind.time(a), kind.time(b)); c != 0 {
				return c
			}
			return strings.Compare(a.key, b.key)
		})
		t.idx[kind] = newTree(kind, &in.leafGen, rows)
	}
	return t.idx[kind]
}

// recollate rebuilds keys after a change of the collation; indexes are rebuilt on next use.
func (in *Instance) recollate() {
	for _, t := range in.tables {
		t.idx = [indexKinds]*tree{}
		if t.parent == nil {
			old := t.ids
			t.ids = make(map[string]*row, len(old))
			for _, r := range old {
				next := *r
				next.key = in.fold(r.id)
				t.ids[next.key] = &next
			}
		}
	}
}

// withIndex runs fn under the read lock with the wanted index of t built.
func (in *Instance) withIndex(t *table, kind indexKind, fn func(ix index)) {
	in.mu.RLock()
	if t.comp != nil {
		defer in.mu.RUnlock()
		fn(computedIndex{t.comp, kind})
		return
	}
	for t.idx[kind] == nil {
		in.mu.RUnlock()
		in.mu.Lock()
		in.index(t, kind)
		in.mu.Unlock()
		in.mu.RLock()
	}
	defer in.mu.RUnlock()
	fn(t.idx[kind])
}

// nextNumber gives out the next number of a table, such as INC0010001.
func (in *Instance) nextNumber(t *table) string {
	for t.prefix == "" && t.parent != nil {
		t = t.parent
	}
	if t.prefix == "" {
		return ""
	}
	t.counter++
	return fmt.Sprintf("%s%07d", t.prefix, t.counter)
}
