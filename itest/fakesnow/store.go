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
}

func (r *row) at(pos int) string {
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
func (in *Instance) withIndex(t *table, kind indexKind, fn func(ix *tree)) {
	in.mu.RLock()
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

// Insert stores rows as given, without rules or audit. A missing sys_id is generated, sys_class_name
// defaults to the table, a missing sys_created_on to sys_updated_on or now, a missing sys_updated_on
// to sys_created_on (pass "" to leave a time empty), sys_mod_count to 0. Unknown tables and columns
// are created. A row with the same sys_id is replaced.
func (in *Instance) Insert(table string, rows ...map[string]string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	t := in.ensureTable(table)
	for _, fields := range rows {
		own := make(map[string]string, len(fields)+6)
		for k, v := range fields {
			own[k] = v
		}
		in.insert(t, own)
	}
}

// Update changes fields of a row as given: no stamp, no rules. A row that is not there is ignored.
func (in *Instance) Update(table, sysID string, fields map[string]string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if r := in.find(in.tables[table], sysID); r != nil {
		in.replace(r, in.build(r.class, r, fields))
	}
}

// Touch is a user's update: it stamps sys_updated_on and sys_updated_by and counts sys_mod_count up.
func (in *Instance) Touch(table, sysID string, fields map[string]string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if r := in.find(in.tables[table], sysID); r != nil {
		own := map[string]string{}
		for k, v := range fields {
			own[k] = v
		}
		in.stamp(r, own, "admin")
		in.replace(r, in.build(r.class, r, own))
	}
}

// stamp adds the system fields of an update of r to fields.
func (in *Instance) stamp(r *row, fields map[string]string, by string) {
	lay := r.class.lay
	if lay.col("sys_updated_on") != nil {
		fields["sys_updated_on"] = in.writeTime()
	}
	if lay.col("sys_updated_by") != nil {
		fields["sys_updated_by"] = by
	}
	if lay.col("sys_mod_count") != nil {
		n, _ := strconv.Atoi(r.get("sys_mod_count"))
		fields["sys_mod_count"] = itoa(n + 1)
	}
}

func (in *Instance) writeTime() string {
	now := in.Now()
	if in.opts.StampWrite != nil {
		now = in.opts.StampWrite(now).UTC()
	}
	return now.Format(Stamp)
}

// Remove takes a row away without a trace (no sys_audit_delete row); see Delete.
func (in *Instance) Remove(table, sysID string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if r := in.find(in.tables[table], sysID); r != nil {
		in.drop(r)
	}
}

// Delete is a user's delete: the row goes and sys_audit_delete gets a row under its real class.
func (in *Instance) Delete(table, sysID string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if r := in.find(in.tables[table], sysID); r != nil {
		in.deleteAudited(r, "admin")
	}
}

func (in *Instance) deleteAudited(r *row, by string) {
	in.drop(r)
	name := r.class.name
	if name == "sys_audit_delete" || slices.Contains(strings.Split(in.settings[SettingNoAuditDelete], ","), name) {
		return
	}
	display := r.get("number")
	if display == "" {
		display = r.get("name")
	}
	in.insertKnown(in.ensureTable("sys_audit_delete"), map[string]string{
		"tablename": name, "documentkey": r.id, "display_value": display, "user": by,
		"sys_created_on": in.writeTime(), "sys_created_by": by,
	})
}

// Get returns a copy of a row of the table or one of its subclasses.
func (in *Instance) Get(table, sysID string) (map[string]string, bool) {
	in.mu.RLock()
	defer in.mu.RUnlock()
	r := in.find(in.tables[table], sysID)
	if r == nil {
		return nil, false
	}
	return r.fields(), true
}

// Rows returns copies of the rows that keep accepts (nil: all), subclasses included, ordered by sys_id.
func (in *Instance) Rows(table string, keep func(map[string]string) bool) []map[string]string {
	in.mu.RLock()
	t := in.tables[table]
	in.mu.RUnlock()
	if t == nil {
		return nil
	}
	var out []map[string]string
	for _, r := range in.collect(t) {
		in.mu.RLock()
		m := r.fields()
		in.mu.RUnlock()
		if keep == nil || keep(m) {
			out = append(out, m)
		}
	}
	return out
}

// collect returns all rows of a table by id, as of one moment.
func (in *Instance) collect(t *table) []*row {
	var rows []*row
	in.withIndex(t, byID, func(ix *tree) {
		rows = make([]*row, 0, t.count)
		ix.ascend(0, func(leaf *node, at int) bool {
			rows = append(rows, leaf.rows[at:]...)
			return true
		})
	})
	return rows
}

// Count is the number of rows of a table, subclasses included.
func (in *Instance) Count(table string) int {
	in.mu.RLock()
	defer in.mu.RUnlock()
	if t := in.tables[table]; t != nil {
		return t.count
	}
	return 0
}

// Tables lists the names of all tables.
func (in *Instance) Tables() []string {
	in.mu.RLock()
	defer in.mu.RUnlock()
	var names []string
	for _, t := range in.sortedTables() {
		names = append(names, t.name)
	}
	return names
}

// SetDisplay gives the display value of a referenced record that has no row of its own.
func (in *Instance) SetDisplay(table, sysID, text string) {
	in.mu.Lock()
	in.displays[table+"/"+sysID] = text
	in.mu.Unlock()
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
