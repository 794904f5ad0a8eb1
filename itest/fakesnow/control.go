package fakesnow

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// control is the fake's own API under /__fake/: faults, journal, clock, rows, settings, state. It
// needs no credentials and is not hit by faults.
func (in *Instance) control(w http.ResponseWriter, r *http.Request) {
	body, err := readAll(r.Body)
	var rep *reply
	name, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/__fake/"), "/")
	switch {
	case err != nil:
		rep = problem("reading the body: " + err.Error())
	case name == "faults":
		rep = in.controlFaults(r, body)
	case name == "journal" && r.Method == http.MethodGet:
		rep = in.controlJournal(r)
	case name == "clock":
		rep = in.controlClock(r, body)
	case name == "rows" && rest != "":
		rep = in.controlRows(r, rest, body)
	case name == "settings":
		rep = in.controlSettings(r, body)
	case name == "state" && r.Method == http.MethodGet:
		rep = in.controlState()
	default:
		rep = jsonReply(http.StatusNotFound, map[string]string{"error": "no such path: faults, journal, clock, rows/{table}, settings, state"})
	}
	for k, v := range rep.header {
		w.Header()[k] = v
	}
	w.WriteHeader(rep.status)
	for _, p := range rep.parts {
		if _, err := w.Write(p); err != nil {
			return
		}
	}
}

func problem(text string) *reply {
	return jsonReply(http.StatusBadRequest, map[string]string{"error": text})
}

func methodNot() *reply {
	return jsonReply(http.StatusMethodNotAllowed, map[string]string{"error": "method not allowed"})
}

func (in *Instance) controlFaults(r *http.Request, body []byte) *reply {
	switch r.Method {
	case http.MethodGet:
		return jsonReply(http.StatusOK, map[string]any{"counts": in.FaultCounts(), "active": in.ActiveFaults()})
	case http.MethodDelete:
		if id, err := strconv.Atoi(r.URL.Query().Get("id")); err == nil {
			in.RemoveFault(id)
		} else {
			in.ClearFaults()
		}
		return jsonReply(http.StatusOK, map[string]any{"counts": in.FaultCounts()})
	case http.MethodPost:
		list := []Fault{{}}
		var err error
		if strings.HasPrefix(strings.TrimSpace(string(body)), "[") {
			list = nil
			err = json.Unmarshal(body, &list)
		} else {
			err = json.Unmarshal(body, &list[0])
		}
		if err != nil {
			return problem("parsing the fault: " + err.Error())
		}
		ids := []int{}
		for i := range list {
			if err := list[i].check(); err != nil {
				return problem(err.Error())
			}
			if list[i].Kind == FaultRefuse && list[i].Params.Seconds == 0 {
				list[i].Params.Seconds = 2 // nobody could clear it through a closed listener
			}
		}
		for _, f := range list {
			ids = append(ids, in.AddFault(f))
		}
		out := map[string]any{"ids": ids}
		if len(ids) > 0 {
			out["id"] = ids[0]
		}
		return jsonReply(http.StatusCreated, out)
	}
	return methodNot()
}

// ActiveFaults lists the faults that have not ended, with their ids and hits.
func (in *Instance) ActiveFaults() []ActiveFault {
	s := &in.faults
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []ActiveFault{}
	for _, f := range s.active {
		if f.Times == 0 || f.hits < f.Times {
			out = append(out, ActiveFault{Fault: f.Fault, ID: f.id, Hits: f.hits})
		}
	}
	return out
}

// ActiveFault is a fault with its id and how often it has hit.
type ActiveFault struct {
	Fault
	ID   int `json:"id"`
	Hits int `json:"hits"`
}

func (in *Instance) controlJournal(r *http.Request) *reply {
	since, _ := strconv.Atoi(r.URL.Query().Get("since"))
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	entries := in.journal.since(since, limit)
	last := since
	for i := range entries {
		last = entries[i].Seq
		if h := entries[i].Headers; h.Get("Authorization") != "" || h.Get("Cookie") != "" {
			h = h.Clone()
			for _, name := range []string{"Authorization", "Cookie"} {
				if h.Get(name) != "" {
					h.Set(name, "redacted")
				}
			}
			entries[i].Headers = h
		}
		if entries[i].Path == tokenPath {
			entries[i].Body = "redacted"
		}
	}
	return jsonReply(http.StatusOK, map[string]any{"entries": entries, "last": last, "dropped": in.JournalDropped()})
}

func (in *Instance) controlClock(r *http.Request, body []byte) *reply {
	if r.Method == http.MethodPost {
		var doc struct {
			Set     string   `json:"set"`
			Advance *float64 `json:"advance_seconds"`
		}
		if err := json.Unmarshal(body, &doc); err != nil {
			return problem("parsing the clock: " + err.Error())
		}
		if doc.Set != "" {
			t, err := time.Parse(time.RFC3339, doc.Set)
			if err != nil {
				t, err = time.Parse(Stamp, doc.Set)
			}
			if err != nil {
				return problem("set is neither RFC 3339 nor yyyy-MM-dd HH:mm:ss: " + doc.Set)
			}
			in.SetClock(t)
		}
		if doc.Advance != nil {
			in.Advance(time.Duration(*doc.Advance * float64(time.Second)))
		}
	} else if r.Method != http.MethodGet {
		return methodNot()
	}
	now := in.Now()
	return jsonReply(http.StatusOK, map[string]string{"now": now.Format(time.RFC3339Nano), "stamp": now.Format(Stamp)})
}

// controlRows is raw access to the store: GET lists rows (?sys_id=, ?limit=), POST inserts an object
// or an array of objects as given, PATCH changes fields of a row as given, DELETE removes a row
// (?audit=true leaves a sys_audit_delete row).
func (in *Instance) controlRows(r *http.Request, path string, body []byte) *reply {
	table, id, _ := strings.Cut(path, "/")
	if id == "" {
		id = r.URL.Query().Get("sys_id")
	}
	switch r.Method {
	case http.MethodGet:
		if id != "" {
			x, ok := in.Get(table, id)
			if !ok {
				return jsonReply(http.StatusNotFound, map[string]string{"error": "no such row"})
			}
			return jsonReply(http.StatusOK, x)
		}
		limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
		n := 0
		rows := in.Rows(table, func(map[string]string) bool { n++; return err != nil || n <= limit })
		if rows == nil {
			rows = []map[string]string{}
		}
		return jsonReply(http.StatusOK, map[string]any{"rows": rows, "count": in.Count(table)})
	case http.MethodPost, http.MethodPatch:
		var raw any
		dec := json.NewDecoder(strings.NewReader(string(body)))
		dec.UseNumber()
		if err := dec.Decode(&raw); err != nil {
			return problem("parsing the rows: " + err.Error())
		}
		items, ok := raw.([]any)
		if !ok {
			items = []any{raw}
		}
		rows := make([]map[string]string, 0, len(items))
		for _, item := range items {
			obj, ok := item.(map[string]any)
			if !ok {
				return problem("a row must be an object")
			}
			fields := map[string]string{}
			for name, v := range obj {
				fields[name] = storedText(v)
			}
			rows = append(rows, fields)
		}
		if r.Method == http.MethodPost {
			in.Insert(table, rows...)
		} else {
			for _, f := range rows {
				in.Update(table, orText(id, f["sys_id"]), f)
			}
		}
		return jsonReply(http.StatusCreated, map[string]int{"rows": len(rows), "count": in.Count(table)})
	case http.MethodDelete:
		if r.URL.Query().Get("audit") == "true" {
			in.Delete(table, id)
		} else {
			in.Remove(table, id)
		}
		return jsonReply(http.StatusOK, map[string]int{"count": in.Count(table)})
	}
	return methodNot()
}

func (in *Instance) controlSettings(r *http.Request, body []byte) *reply {
	if r.Method == http.MethodPost {
		var doc map[string]string
		if err := json.Unmarshal(body, &doc); err != nil {
			return problem("parsing the settings: " + err.Error())
		}
		for name, value := range doc {
			in.SetSetting(name, value)
		}
	}
	in.mu.RLock()
	defer in.mu.RUnlock()
	return jsonReply(http.StatusOK, in.settings)
}

func (in *Instance) controlState() *reply {
	in.mu.RLock()
	counts := map[string]int{}
	for name, t := range in.tables {
		if t.count > 0 {
			counts[name] = t.count
		}
	}
	in.mu.RUnlock()
	j := &in.journal
	j.mu.Lock()
	high, now := map[string]int{}, map[string]int{}
	for u, n := range j.high {
		high[u] = n
	}
	for u, n := range j.inFlight {
		now[u] = n
	}
	seq := j.seq
	j.mu.Unlock()
	return jsonReply(http.StatusOK, map[string]any{
		"now": in.Now().Format(time.RFC3339Nano), "rows": counts, "in_flight_high_water": high, "in_flight": now,
		"requests": seq, "journal_dropped": in.JournalDropped(), "faults": in.FaultCounts(),
	})
}
