package fakesnow

import (
	"slices"
	"strconv"
	"strings"
)

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
	in.withIndex(t, byID, func(ix index) {
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
