package fakesnow

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

func splitList(list string) []string {
	var out []string
	for _, s := range strings.Split(list, ",") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// payload reads a JSON object into values as the instance stores them: everything is a string.
func (r *request) payload() (map[string]string, *reply) {
	bad := errorReply(http.StatusBadRequest, "Exception while reading request", "The payload is not valid JSON.")
	if len(bytes.TrimSpace(r.body)) == 0 {
		return map[string]string{}, nil
	}
	dec := json.NewDecoder(bytes.NewReader(r.body))
	dec.UseNumber()
	var raw map[string]any
	if err := dec.Decode(&raw); err != nil || raw == nil {
		return nil, bad
	}
	if dec.More() {
		return nil, bad
	}
	fields := make(map[string]string, len(raw))
	for name, v := range raw {
		fields[name] = storedText(v)
	}
	return fields, nil
}

func storedText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case bool:
		return boolText(v)
	case json.Number:
		return v.String()
	case map[string]any:
		for _, name := range []string{"value", "display_value"} {
			if inner, ok := v[name]; ok {
				return storedText(inner)
			}
		}
	}
	text, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(text)
}

// accepted drops what a write may not set and converts the rest; the caller holds in.mu. Journal
// entries are returned apart.
func (in *Instance) accepted(r *request, t *table, given map[string]string, insert bool) (fields, notes map[string]string) {
	fields, notes = map[string]string{}, map[string]string{}
	display := r.flag("sysparm_input_display_value")
	for name, v := range given {
		col := t.lay.col(name)
		if col == nil || strings.HasPrefix(name, "sys_") || in.isFrozen(t, name) || in.isHidden(r.user, t, name) {
			continue
		}
		if col.isJournal() {
			if v != "" && name != "comments_and_work_notes" {
				notes[name] = v
			}
			continue
		}
		if v == "" && !insert && col.choice == "dropdown_without_none" {
			continue // an empty value does not clear a choice
		}
		if col.kind == "boolean" {
			switch strings.ToLower(v) {
			case "1", "true", "yes":
				v = "true"
			case "0", "false", "no":
				v = "false"
			}
		}
		if col.isTime() && display {
			sc := &scope{in: in, user: r.user}
			v = sc.toUTC(v)
		}
		if display && col.isReference() {
			v = in.byDisplay(col, v)
		}
		if in.settings[SettingTruncate] == "true" && col.maxLen > 0 {
			if runes := []rune(v); len(runes) > col.maxLen {
				v = string(runes[:col.maxLen])
			}
		}
		fields[name] = v
	}
	return fields, notes
}

// byDisplay finds the record that a display value names, else keeps the text.
func (in *Instance) byDisplay(col *column, text string) string {
	target := in.tables[col.target()]
	if target == nil || text == "" || in.find(target, text) != nil {
		return text
	}
	best := ""
	for _, x := range target.root().ids {
		if x.class.is(target) && (x.get("name") == text || x.get("number") == text || x.get("user_name") == text) && (best == "" || x.key < best) {
			best = x.id
		}
	}
	return orText(best, text)
}

func (in *Instance) create(r *request, t *table) *reply {
	given, bad := r.payload()
	if bad != nil {
		return bad
	}
	in.mu.Lock()
	x, refused := in.createRow(r, t, given)
	in.mu.Unlock()
	if refused != nil {
		return refused
	}
	rep := in.record(http.StatusCreated, r, t, x)
	rep.header.Set("Location", r.base+r.URL.Path+"/"+x.id)
	return r.shorten(rep)
}

// createRow inserts a row under the rules of a POST; the caller holds in.mu.
func (in *Instance) createRow(r *request, t *table, given map[string]string) (*row, *reply) {
	if sub := in.tables[given["sys_class_name"]]; sub != nil && sub.is(t) {
		t = sub
	}
	fields, notes := in.accepted(r, t, given, true)
	id := given["sys_id"]
	if in.settings[SettingKeepGivenID] == "false" {
		id = ""
	}
	if id != "" && t.root().ids[in.fold(id)] != nil {
		return nil, errorReply(http.StatusForbidden, failedOperation, "Error during insert of "+t.name+" ("+id+"): Unique Key violation detected by database (Duplicate entry '"+id+"' for key 'PRIMARY')")
	}
	in.defaults(r, t, fields)
	now := in.writeTime()
	for name, v := range map[string]string{
		"sys_created_on": now, "sys_updated_on": now, "sys_created_by": r.user.name, "sys_updated_by": r.user.name,
		"sys_mod_count": "0", "sys_class_name": t.name,
	} {
		if t.lay.col(name) != nil {
			fields[name] = v
		}
	}
	fields["sys_id"] = id
	x := in.insert(t, fields)
	in.journalNotes(x, notes, r.user.name)
	return x, nil
}

// defaults fills what a form of the table would.
func (in *Instance) defaults(r *request, t *table, fields map[string]string) {
	given := func(name string) bool { _, ok := fields[name]; return ok }
	rated := fields["impact"] != "" || fields["urgency"] != ""
	hadPriority := fields["priority"] != ""
	for _, c := range t.lay.cols {
		if given(c.name) && fields[c.name] != "" || c.def == "" || strings.HasPrefix(c.def, "javascript:") || c.isJournal() {
			continue
		}
		if !given(c.name) || c.choice == "dropdown_without_none" {
			fields[c.name] = c.def
		}
	}
	has := func(name string) bool { return t.lay.col(name) != nil }
	if has("number") && fields["number"] == "" {
		fields["number"] = in.nextNumber(t)
	}
	if has("opened_at") && !given("opened_at") {
		fields["opened_at"] = in.writeTime()
	}
	if has("opened_by") && !given("opened_by") {
		fields["opened_by"] = r.user.id
	}
	if has("sys_domain") && fields["sys_domain"] == "" {
		fields["sys_domain"] = "global"
	}
	if t.name == "incident" && !hadPriority && rated {
		fields["priority"] = priorityOf(fields["impact"], fields["urgency"])
	} else if t.name == "incident" && !hadPriority && fields["impact"] == "3" && fields["urgency"] == "3" {
		fields["priority"] = "5"
	}
	if t.name == "incident" && given("state") && fields["state"] != "" {
		fields["incident_state"] = fields["state"]
	}
}

// priorityOf is the priority look-up of incident.
func priorityOf(impact, urgency string) string {
	if len(impact) != 1 || len(urgency) != 1 || impact < "1" || impact > "3" || urgency < "1" || urgency > "3" {
		return "4"
	}
	return itoa(int(impact[0]-'0') + int(urgency[0]-'0') - 1)
}

func (in *Instance) journalNotes(x *row, notes map[string]string, by string) {
	names := make([]string, 0, len(notes))
	for name := range notes {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		in.insertKnown(in.ensureTable("sys_journal_field"), map[string]string{
			"name": x.class.name, "element": name, "element_id": x.id, "value": notes[name],
			"sys_created_on": in.writeTime(), "sys_created_by": by,
		})
	}
}

func (in *Instance) change(r *request, t *table) *reply {
	given, bad := r.payload()
	if bad != nil {
		return bad
	}
	if in.one(r, t) == nil {
		return noRecord()
	}
	in.mu.Lock()
	x := in.find(t, r.id)
	if x == nil {
		in.mu.Unlock()
		return noRecord()
	}
	fields, notes := in.accepted(r, x.class, given, false)
	changed := len(notes) > 0
	for name, v := range fields {
		if x.get(name) == v {
			delete(fields, name)
			continue
		}
		changed = true
	}
	if changed { // an update that changes nothing leaves the stamps alone
		in.stamp(x, fields, r.user.name)
		next := in.build(x.class, x, fields)
		in.replace(x, next)
		in.journalNotes(next, notes, r.user.name)
		x = next
	}
	in.mu.Unlock()
	return r.shorten(in.record(http.StatusOK, r, t, x))
}

func (in *Instance) erase(r *request, t *table) *reply {
	if in.one(r, t) == nil {
		return noRecord()
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	x := in.find(t, r.id)
	if x == nil {
		return noRecord()
	}
	in.deleteAudited(x, r.user.name)
	return newReply(http.StatusNoContent)
}

// shorten leaves out the body when the client asked so.
func (r *request) shorten(rep *reply) *reply {
	if r.Header.Get("X-no-response-body") == "true" {
		rep.parts = nil
		rep.header.Del("Content-Type")
	}
	return rep
}
