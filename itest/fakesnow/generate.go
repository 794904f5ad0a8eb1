package fakesnow

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"time"
)

// GenOptions says how generated rows are spread over time.
type GenOptions struct {
	// Start is the time of the oldest row (default: Span before the instance's time).
	Start time.Time
	// Span is the time from the oldest to the newest row (default 30 days); 0 with OneSecond.
	Span time.Duration
	// OneSecond puts all rows into the second of Start.
	OneSecond bool
	// Seed varies the rows; 0 uses the instance's seed.
	Seed int64
	// MinimalFields leaves texts short, for tests with many rows.
	MinimalFields bool
	// IDPrefix begins every sys_id, so that two Generate calls with the same seed differ.
	IDPrefix string
}

// Generate adds n realistic rows to a table: incident, change_request, cmdb_ci_server, sys_user are
// filled to about 60 fields, other tables get what their columns allow. The same seed gives the same
// rows.
func (in *Instance) Generate(table string, n int, g GenOptions) {
	seed := in.opts.Seed
	if g.Seed != 0 {
		seed = g.Seed
	}
	if g.Span == 0 && !g.OneSecond {
		g.Span = 30 * 24 * time.Hour
	}
	start := g.Start
	if start.IsZero() {
		start = in.Now().Add(-g.Span)
	}
	rnd := rand.New(rand.NewPCG(uint64(seed), mix(1, table))) //nolint:gosec // repeatable on purpose
	in.mu.Lock()
	defer in.mu.Unlock()
	t := in.ensureTable(table)
	first := t.counter
	gen := &generator{rnd: rnd, t: t, in: in, short: g.MinimalFields}
	gen.prepare()
	bulk := t.count == 0
	if bulk {
		for a := t; a != nil; a = a.parent {
			a.idx = [indexKinds]*tree{} // built at once on first use
		}
	}
	for i := range n {
		at := start
		if !g.OneSecond && n > 1 {
			at = start.Add(time.Duration(float64(g.Span) * float64(i) / float64(n-1)))
		}
		r := gen.row(first+i+1, at, g.IDPrefix)
		in.finish(r)
		in.store(r)
	}
	t.counter = first + n
}

type generator struct {
	rnd   *rand.Rand
	in    *Instance
	t     *table
	short bool
	pools map[string][]string
	fill  []func(at string) string // by column
	pos   map[string]int
}

func (g *generator) pick(list []string) string { return list[g.rnd.IntN(len(list))] }

func (g *generator) id() string {
	var b [16]byte
	for i := 0; i < 16; i += 8 {
		v := g.rnd.Uint64()
		for k := range 8 {
			b[i+k] = byte(v >> (8 * k))
		}
	}
	return hex.EncodeToString(b[:])
}

// pool is a set of ids of a referenced table, the same for every run.
func (g *generator) pool(target string) []string {
	if g.pools[target] == nil {
		for i := range 50 {
			id := hashID("pool", target, itoa(i))
			g.pools[target] = append(g.pools[target], id)
			if g.in.displays[target+"/"+id] == "" {
				g.in.displays[target+"/"+id] = fmt.Sprintf("%s %02d", title(target), i)
			}
		}
	}
	return g.pools[target]
}

var (
	genSubjects = []string{"Cannot reach", "Slow response from", "Error message in", "Access needed to", "Replace", "Upgrade of", "Outage of", "Question about", "Reset password for", "Sporadic failure of"}
	genObjects  = []string{"the mail server", "SAP finance", "the VPN gateway", "printer on floor 3", "the data warehouse", "laptop dock", "Wi-Fi in building 7", "the HR portal", "database cluster db-04", "the file share \"projects\""}
	genWords    = []string{"user", "reports", "since", "this", "morning", "the", "application", "shows", "a", "timeout", "after", "login", "restart", "did", "not", "help", "please", "check", "network", "and", "permissions", "größer", "naïve", "event", "log"}
	genTypes    = []string{"Phone", "Email", "Self-service", "Walk-in"}
	genCategory = []string{"inquiry", "software", "hardware", "network", "database"}
	genPeople   = []string{"admin", "abel.tuter", "beth.anglin", "fred.luddy", "itil", "system"}
)

func (g *generator) text(words int) string {
	if g.short {
		words = 3
	}
	b := make([]byte, 0, words*8)
	for i := range words {
		if i > 0 {
			b = append(b, ' ')
		}
		b = append(b, g.pick(genWords)...)
	}
	return string(b)
}

// prepare decides once per column how its values are made.
func (g *generator) prepare() {
	g.pools = map[string][]string{}
	g.fill = make([]func(string) string, len(g.t.lay.cols))
	g.pos = g.t.lay.pos
	for i, c := range g.t.lay.cols {
		g.fill[i] = g.filler(c)
	}
}

func (g *generator) filler(c *column) func(string) string {
	constant := func(v string) func(string) string { return func(string) string { return v } }
	oneOf := func(list ...string) func(string) string { return func(string) string { return g.pick(list) } }
	switch c.name {
	case "priority":
		return oneOf("1", "2", "3", "4", "5")
	case "impact", "urgency", "severity":
		return oneOf("1", "2", "3")
	case "state", "incident_state":
		return oneOf("1", "2", "3", "6", "7")
	case "category":
		return oneOf(genCategory...)
	case "contact_type":
		return oneOf(genTypes...)
	case "short_description":
		return func(string) string { return g.pick(genSubjects) + " " + g.pick(genObjects) }
	case "description", "close_notes", "justification", "implementation_plan":
		return func(string) string { return g.text(18) }
	case "name", "host_name":
		return func(string) string { return fmt.Sprintf("srv-%05x", g.rnd.IntN(1<<20)) }
	case "user_name", "email", "first_name", "last_name":
		return func(string) string { return fmt.Sprintf("user%06d", g.rnd.IntN(1000000)) }
	case "ip_address":
		return func(string) string {
			return fmt.Sprintf("10.%d.%d.%d", g.rnd.IntN(256), g.rnd.IntN(256), g.rnd.IntN(256))
		}
	case "sys_created_by", "sys_updated_by":
		return oneOf(genPeople...)
	case "user_password", "time_zone", "password", "roles", "sys_tags", "number", "sys_id", "sys_class_name", "sys_mod_count", "sys_created_on", "sys_updated_on":
		return nil
	}
	switch {
	case c.isJournal() || c.kind == "glide_list" || c.kind == "variables":
		return nil
	case c.kind == "domain_id":
		return constant("global")
	case c.isReference():
		if g.rnd.IntN(3) == 0 {
			return nil
		}
		pool := g.pool(c.target())
		return func(string) string { return pool[g.rnd.IntN(len(pool))] }
	case c.kind == "boolean":
		return oneOf("true", "false", "false")
	case c.isTime():
		return func(at string) string { return at }
	case c.kind == "glide_date":
		return func(at string) string { return at[:10] }
	case c.isNumber():
		return oneOf("0", "1", "2", "4", "16")
	case c.def != "" && len(c.def) < 11:
		return constant(c.def)
	case c.kind == "glide_duration":
		return oneOf("", "1970-01-01 00:02:17", "1970-01-02 03:00:00")
	case c.kind == "string" && g.rnd.IntN(2) == 0:
		return func(string) string { return g.pick(genWords) + " " + g.pick(genWords) }
	}
	return nil
}

// row makes the row with this number.
func (g *generator) row(number int, at time.Time, idPrefix string) *row {
	t := g.t
	stamp := at.UTC().Format(Stamp)
	vals := make([]string, len(t.lay.cols))
	for i, fn := range g.fill {
		if fn != nil {
			vals[i] = fn(stamp)
		}
	}
	set := func(name, v string) {
		if p, ok := g.pos[name]; ok {
			vals[p] = v
		}
	}
	if p, ok := g.pos["state"]; ok && t.name == "incident" {
		set("incident_state", vals[p])
		set("active", boolText(vals[p] != "7"))
		if vals[p] < "6" {
			for _, name := range []string{"resolved_at", "resolved_by", "closed_at", "closed_by", "close_code", "close_notes"} {
				set(name, "")
			}
		}
	}
	id := g.id()
	if n := len(idPrefix); n > 0 {
		id = idPrefix + id[min(n, len(id)):]
	}
	set("sys_id", id)
	set("sys_class_name", t.name)
	set("sys_created_on", stamp)
	set("sys_updated_on", stamp)
	set("sys_mod_count", itoa(g.rnd.IntN(10)))
	if prefix := prefixOf(t); prefix != "" {
		set("number", fmt.Sprintf("%s%07d", prefix, number))
	}
	if t.name == "sys_user" {
		set("user_name", fmt.Sprintf("user.%07d", number))
	}
	return &row{class: t, vals: vals}
}

func prefixOf(t *table) string {
	for ; t != nil; t = t.parent {
		if t.prefix != "" {
			return t.prefix
		}
	}
	return ""
}
