package fakesnow

import (
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
)

// number reads a setting as an integer.
func (in *Instance) number(name string, def int) int {
	if n, err := strconv.Atoi(in.Setting(name)); err == nil {
		return n
	}
	return def
}

func (r *request) integer(name string, def int) int {
	if n, err := strconv.Atoi(r.query.Get(name)); err == nil && n >= 0 {
		return n
	}
	return def
}

func (r *request) flag(name string) bool { return r.query.Get(name) == "true" }

func (r *request) struck(kind string) *hit {
	for i := range r.hits {
		if r.hits[i].Kind == kind {
			return &r.hits[i]
		}
	}
	return nil
}

// search compiles and runs the request's query. A nil reply means success.
func (in *Instance) search(r *request, t *table, ft fetch) (page, *reply) {
	policy := in.Setting(SettingInvalidTerm)
	if in.Setting(SettingInvalidQuery) == "true" && policy != "forbid" {
		policy = "empty"
	}
	sc := &scope{in: in, t: t, user: r.user, policy: policy, noTime: r.struck(FaultExtraRows) != nil}
	q := parseQuery(r.query.Get("sysparm_query"), in.Setting(SettingCaretEscape) == "true")
	q.simple(r.query, t)
	pg := in.run(t, func() *filter { return sc.compile(q) }, ft)
	if sc.bad && policy == "forbid" {
		return page{}, errorReply(http.StatusForbidden, queryRights, "Field(s) present in the query do not have permission to be read")
	}
	return pg, nil
}

// simple adds the conditions written as plain parameters (?active=true&state=1), which the Table API
// takes too.
func (q *query) simple(params url.Values, t *table) {
	for name, vals := range params {
		if t.lay.col(name) == nil || len(vals) == 0 {
			continue
		}
		for i := range q.groups {
			q.groups[i].clauses = append(q.groups[i].clauses, clause{terms: []term{{field: name, op: "=", value: vals[0]}}})
		}
	}
}

func (in *Instance) view(r *request, t *table) *view {
	in.mu.RLock()
	defer in.mu.RUnlock()
	display := r.query.Get("sysparm_display_value")
	return in.newView(t, r.user, r.base, r.query.Get("sysparm_fields"), display, r.flag("sysparm_exclude_reference_link"))
}

func (in *Instance) list(r *request, t *table) *reply {
	ft := fetch{
		limit: r.integer("sysparm_limit", 10000), offset: r.integer("sysparm_offset", 0),
		count: !r.flag("sysparm_no_count"),
	}
	if in.Setting(SettingUnordered) == "shuffle" {
		ft.shuffle = uint64(in.journal.next())<<1 | 1 // bits
	}
	pg, failed := in.search(r, t, ft)
	if failed != nil {
		return failed
	}
	pg = in.thin(t, pg)
	in.shake(r, t, &pg)
	v := in.view(r, t)
	in.mu.RLock()
	v.bind(pg.rows)
	in.mu.RUnlock()

	rep := newReply(http.StatusOK)
	rep.rows = len(pg.rows)
	if ft.count {
		rep.header.Set("X-Total-Count", itoa(pg.total))
		if !r.flag("sysparm_suppress_pagination_header") {
			if link := r.links(ft, pg.total); link != "" {
				if most := in.number(SettingLinkMax, 0); most > 0 && len(link) > most {
					return errorReply(http.StatusBadRequest, "Pagination not supported", "")
				}
				rep.header.Set("Link", link)
			}
		}
	}
	if r.v1 && len(pg.rows) == 0 {
		gone := noRecord()
		gone.header.Set("X-Total-Count", itoa(max(pg.total, 0)))
		return gone
	}
	rep.header.Set("Content-Type", jsonType)
	gz := in.wantsGzip(r)
	if gz {
		rep.header.Set("Content-Encoding", "gzip")
	}
	rep.parts = in.render(pg, v, gz)
	return rep
}

// thin applies the row ACLs, after the limit as the real instance does.
func (in *Instance) thin(t *table, pg page) page {
	in.mu.RLock()
	var acls []func(string, map[string]string) bool
	var tables []*table
	for name, fn := range in.hiddenRow {
		if at := in.tables[name]; at != nil && (at.is(t) || t.is(at)) {
			acls, tables = append(acls, fn), append(tables, at)
		}
	}
	in.mu.RUnlock()
	if len(acls) == 0 {
		return pg
	}
	kept := make([]*row, 0, len(pg.rows))
	for _, r := range pg.rows {
		hidden := false
		for i, fn := range acls {
			if !r.class.is(tables[i]) {
				continue
			}
			in.mu.RLock()
			m := r.fields()
			in.mu.RUnlock()
			hidden = hidden || fn(r.id, m)
		}
		if !hidden {
			kept = append(kept, r)
		}
	}
	if len(kept) < len(pg.rows) {
		pg.rows, pg.segs = kept, nil
	}
	return pg
}

// shake applies the faults on rows.
func (in *Instance) shake(r *request, t *table, pg *page) {
	if h := r.struck(FaultDuplicateRows); h != nil && len(pg.rows) > 0 {
		n := max(1, h.Params.Rows)
		rows := make([]*row, 0, len(pg.rows)+n)
		for i, x := range pg.rows {
			rows = append(rows, x)
			if i < n {
				rows = append(rows, x)
			}
		}
		pg.rows, pg.segs = rows, nil
	}
	if h := r.struck(FaultReorderRows); h != nil {
		rows := append([]*row(nil), pg.rows...)
		rnd := rand.New(rand.NewPCG(h.dice, 1)) //nolint:gosec // repeatable on purpose
		rnd.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
		pg.rows, pg.segs = rows, nil
	}
	if h := r.struck(FaultTouchRows); h != nil {
		for _, x := range pg.rows[:min(len(pg.rows), max(1, h.Params.Rows))] {
			in.Touch(t.name, x.id, nil)
		}
	}
}

// links is the Link header of a list.
func (r *request) links(ft fetch, total int) string {
	if ft.limit <= 0 {
		return ""
	}
	link := func(rel string, offset int) string {
		q := url.Values{}
		for k, v := range r.query {
			q[k] = v
		}
		q.Set("sysparm_limit", itoa(ft.limit))
		q.Set("sysparm_offset", itoa(max(0, offset)))
		return "<" + r.base + r.URL.Path + "?" + q.Encode() + `>;rel="` + rel + `"`
	}
	last := 0
	if total > 0 {
		last = (total - 1) / ft.limit * ft.limit
	}
	out := link("first", 0)
	if ft.offset > 0 {
		out += "," + link("prev", ft.offset-ft.limit)
	}
	if ft.offset+ft.limit < total {
		out += "," + link("next", ft.offset+ft.limit)
	}
	return out + "," + link("last", last)
}

// one finds the record that the request names; nil when it is not there or hidden.
func (in *Instance) one(r *request, t *table) *row {
	in.mu.RLock()
	x := in.find(t, r.id)
	in.mu.RUnlock()
	if x == nil {
		return nil
	}
	if len(in.thin(t, page{rows: []*row{x}}).rows) == 0 {
		return nil
	}
	return x
}

func (in *Instance) getOne(r *request, t *table) *reply {
	x := in.one(r, t)
	if x == nil {
		return noRecord()
	}
	rep := in.record(http.StatusOK, r, t, x)
	rep.rows = 1
	return rep
}

// record answers with one record as the result.
func (in *Instance) record(status int, r *request, t *table, x *row) *reply {
	v := in.view(r, t)
	in.mu.RLock()
	defer in.mu.RUnlock()
	v.bind([]*row{x})
	body := append(v.encode([]byte(`{"result":`), x), '}')
	return newReply(status).set(body, jsonType)
}

// stats is the Aggregate API: counts, with group by, and smallest and largest values.
func (in *Instance) stats(r *request, t *table) *reply {
	in.mu.RLock()
	groupBy := in.getter(t, r.user, r.query.Get("sysparm_group_by"))
	in.mu.RUnlock()
	extremes := r.query.Get("sysparm_min_fields") + r.query.Get("sysparm_max_fields")
	ft := fetch{count: true}
	if groupBy != nil || extremes != "" {
		ft.limit = int(^uint(0) >> 1)
	}
	pg, failed := in.search(r, t, ft)
	if failed != nil {
		return failed
	}
	in.mu.RLock()
	defer in.mu.RUnlock()
	if groupBy == nil {
		return jsonReply(http.StatusOK, map[string]any{"result": map[string]any{"stats": in.aggregate(r, t, pg.rows, pg.total)}})
	}
	var names []string
	groups := map[string][]*row{}
	for _, x := range pg.rows {
		v := groupBy.read(x)
		if groups[v] == nil {
			names = append(names, v)
		}
		groups[v] = append(groups[v], x)
	}
	result := []any{}
	for _, v := range names {
		result = append(result, map[string]any{
			"stats":          in.aggregate(r, t, groups[v], len(groups[v])),
			"groupby_fields": []any{map[string]string{"field": groupBy.name, "value": v}},
		})
	}
	return jsonReply(http.StatusOK, map[string]any{"result": result})
}

func (in *Instance) aggregate(r *request, t *table, rows []*row, total int) map[string]any {
	out := map[string]any{}
	if r.flag("sysparm_count") {
		out["count"] = itoa(total)
	}
	for _, side := range []string{"min", "max"} {
		list := r.query.Get("sysparm_" + side + "_fields")
		if list == "" {
			continue
		}
		vals := map[string]string{}
		for _, name := range splitList(list) {
			get := in.getter(t, r.user, name)
			if get == nil {
				continue
			}
			best := ""
			for _, x := range rows {
				v := get.read(x)
				if v == "" {
					continue
				}
				if c := in.compareValues(get.col, v, best); best == "" || side == "min" && c < 0 || side == "max" && c > 0 {
					best = v
				}
			}
			vals[name] = best
		}
		out[side] = vals
	}
	return out
}
