package fakesnow

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
)

// EventLog is a log of incident updates (shared/data/README.md describes it), to be applied in the
// order of time. It may be used by several goroutines; several instances need a log each.
type EventLog struct {
	mu     sync.Mutex
	events []event
	next   int
}

type event struct {
	at     time.Time
	fields []string // by eventColumns
}

// csvTimes is the layout of times in the log.
const csvTimes = "2/1/2006 15:04"

// eventRefs maps columns of the log to the tables that they refer to.
var eventRefs = map[string]string{
	"caller_id": "sys_user", "opened_by": "sys_user", "assigned_to": "sys_user", "resolved_by": "sys_user",
	"assignment_group": "sys_user_group", "location": "cmn_location", "cmdb_ci": "cmdb_ci", "problem_id": "problem",
	"rfc": "change_request", "caused_by": "change_request",
}

var eventStates = map[string]string{
	"New": "1", "Active": "2", "Awaiting Problem": "3", "Awaiting User Info": "4", "Awaiting Evidence": "5",
	"Awaiting Vendor": "5", "Resolved": "6", "Closed": "7",
}

var eventNotify = map[string]string{"Do Not Notify": "1", "Send Email": "2"}

// eventNames renames columns of the log.
var eventNames = map[string]string{
	"sys_created_at": "sys_created_on", "sys_updated_at": "sys_updated_on", "closed_code": "close_code",
}

// LoadEvents reads a csv.gz of incident events, sorted by their time and within a minute by their
// place in the file.
func LoadEvents(path string) (*EventLog, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the event log: %w", err)
	}
	defer func() { _ = f.Close() }()
	zr, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("inflating the event log %s: %w", path, err)
	}
	defer func() { _ = zr.Close() }()
	log, err := readEvents(zr)
	if err != nil {
		return nil, fmt.Errorf("reading the event log %s: %w", path, err)
	}
	return log, nil
}

func readEvents(r io.Reader) (*EventLog, error) {
	in := csv.NewReader(r)
	in.ReuseRecord = true
	head, err := in.Read()
	if err != nil {
		return nil, err
	}
	if len(head) != len(eventColumns) {
		return nil, fmt.Errorf("the log has %d columns, want %d", len(head), len(eventColumns))
	}
	for i, name := range head {
		if name != eventColumns[i] {
			return nil, fmt.Errorf("column %d of the log is %q, want %q", i+1, name, eventColumns[i])
		}
	}
	log := &EventLog{}
	shared := map[string]string{} // one copy of each text
	for {
		rec, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		ev := event{fields: make([]string, len(rec))}
		for i, v := range rec {
			kept, ok := shared[v]
			if !ok {
				kept = strings.Clone(v)
				shared[kept] = kept
			}
			ev.fields[i] = kept
		}
		if ev.at, err = time.Parse(csvTimes, rec[eventUpdated]); err != nil {
			return nil, fmt.Errorf("parsing sys_updated_at of %s: %w", rec[0], err)
		}
		log.events = append(log.events, ev)
	}
	sort.SliceStable(log.events, func(i, j int) bool { return log.events[i].at.Before(log.events[j].at) })
	return log, nil
}

var eventColumns = strings.Split("number,incident_state,active,reassignment_count,reopen_count,sys_mod_count,made_sla,caller_id,opened_by,opened_at,sys_created_by,sys_created_at,sys_updated_by,sys_updated_at,contact_type,location,category,subcategory,u_symptom,cmdb_ci,impact,urgency,priority,assignment_group,assigned_to,knowledge,u_priority_confirmation,notify,problem_id,rfc,vendor,caused_by,closed_code,resolved_by,resolved_at,closed_at", ",")

const eventUpdated = 13 // sys_updated_at

// Len is the number of events.
func (l *EventLog) Len() int { return len(l.events) }

// Applied is the number of events applied so far.
func (l *EventLog) Applied() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next
}

// Peek is the time of the next event; false when all are applied.
func (l *EventLog) Peek() (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next >= len(l.events) {
		return time.Time{}, false
	}
	return l.events[l.next].at, true
}

// Rewind makes the first event the next one.
func (l *EventLog) Rewind() {
	l.mu.Lock()
	l.next = 0
	l.mu.Unlock()
}

// Apply writes the next n events to the instance, raw and with their own timestamps: each sets the
// whole row of its incident. It returns how many there were.
func (l *EventLog) Apply(in *Instance, n int) (applied int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := min(len(l.events), l.next+max(n, 0))
	in.mu.Lock()
	defer in.mu.Unlock()
	t := in.ensureTable("incident")
	for ; l.next < end; l.next++ {
		in.insert(t, in.incident(l.events[l.next]))
		applied++
	}
	return applied
}

// ApplyUntil applies all events up to a time.
func (l *EventLog) ApplyUntil(in *Instance, until time.Time) int {
	l.mu.Lock()
	n := sort.Search(len(l.events), func(i int) bool { return l.events[i].at.After(until) }) - l.next
	l.mu.Unlock()
	return l.Apply(in, n)
}

// SysID is the sys_id that the log gives to an incident number.
func (l *EventLog) SysID(number string) string { return hashID("incident", number) }

// incident maps an event to a row; the caller holds in.mu.
func (in *Instance) incident(ev event) map[string]string {
	f := make(map[string]string, len(ev.fields)+8)
	for i, name := range eventColumns {
		v := ev.fields[i]
		if v == "?" {
			v = ""
		}
		switch {
		case v == "":
		case eventRefs[name] != "":
			id := hashID(eventRefs[name], v)
			in.displays[eventRefs[name]+"/"+id] = v
			v = id
		case strings.HasSuffix(name, "_at"):
			if at, err := time.Parse(csvTimes, v); err == nil {
				v = at.Format(Stamp)
			}
		case name == "impact", name == "urgency", name == "priority":
			v, _, _ = strings.Cut(v, " - ")
		case name == "incident_state":
			v = orText(eventStates[v], v)
		case name == "notify":
			v = orText(eventNotify[v], v)
		}
		f[orText(eventNames[name], name)] = v
	}
	if f["sys_created_on"] == "" {
		f["sys_created_on"] = f["opened_at"]
	}
	if f["incident_state"] != "6" && f["incident_state"] != "7" {
		for _, name := range []string{"resolved_at", "resolved_by", "closed_at", "close_code"} {
			f[name] = ""
		}
	}
	f["state"] = f["incident_state"]
	f["sys_id"] = hashID("incident", f["number"])
	f["sys_class_name"] = "incident"
	f["sys_domain"], f["sys_domain_path"] = "global", "/"
	f["upon_approval"], f["upon_reject"], f["approval"] = "proceed", "cancel", "not requested"
	f["severity"], f["escalation"] = "3", "0"
	f["short_description"] = "Incident " + f["number"]
	return f
}
