package servicenow

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"snowmelt/core/failure"
)

// maxAncestors bounds the inheritance of a table.
const maxAncestors = 32

// dictionaryPage is the number of rows asked for at once.
const dictionaryPage = 1000

// TableFields returns the names of a table's columns, inherited ones included,
// from sys_db_object and sys_dictionary. It is complete or an error: an answer
// that hides rows is Permission, with TableWide set (sink.md section 1).
func (c *Client) TableFields(ctx context.Context, table string) (map[string]bool, error) {
	var chain []string
	for name := table; name != ""; {
		if slices.Contains(chain, name) || len(chain) >= maxAncestors {
			return nil, &failure.Error{Class: failure.Misconfigured, Op: "reading the dictionary of " + table, Detail: "the inheritance of tables goes in a circle at " + name}
		}
		rows, err := c.readAll(ctx, "sys_db_object", "name="+name, "name,super_class.name")
		if err != nil {
			return nil, err
		}
		if len(rows) == 0 {
			if len(chain) == 0 {
				return nil, &failure.Error{
					Class: failure.NotFound, Op: "reading the dictionary of " + table, Detail: "sys_db_object has no table " + table,
					Hint: "check snow.sink.table", TableWide: true,
				}
			}
			break
		}
		chain = append(chain, name)
		name = gjson.Get(rows[0], `super_class\.name`).String()
	}
	rows, err := c.readAll(ctx, "sys_dictionary", "nameIN"+strings.Join(chain, ",")+"^elementISNOTEMPTY", "element")
	if err != nil {
		return nil, err
	}
	fields := map[string]bool{}
	for _, r := range rows {
		fields[gjson.Get(r, "element").String()] = true
	}
	if len(fields) == 0 {
		return nil, hidden("sys_dictionary", table, 0, 0)
	}
	return fields, nil
}

// hidden is the failure of a look-up that did not show everything.
func hidden(read, table string, shown, total int) error {
	return &failure.Error{
		Class: failure.Permission, Op: "reading the dictionary of " + table, TableWide: true,
		Detail: fmt.Sprintf("%s showed %d of %d rows", read, shown, total),
		Hint:   "let the integration user read sys_db_object and sys_dictionary, or set snow.sink.unknown.field.behavior=passthrough",
	}
}

// readAll reads every row of a small query, with proof (source.md rule 1).
func (c *Client) readAll(ctx context.Context, table, query, fields string) ([]string, error) {
	var out []string
	after := ""
	for {
		q := query
		if after != "" {
			q += "^sys_id>" + after
		}
		p, err := c.List(ctx, ListRequest{
			Table: table, Query: q + "^ORDERBYsys_id", Limit: dictionaryPage, Fields: append(strings.Split(fields, ","), "sys_id"), Count: true,
		}, Fields{ID: "sys_id"})
		if err != nil {
			return nil, err
		}
		for _, r := range p.Rows {
			out = append(out, string(r.Raw))
			after = r.SysID
		}
		shown, total := len(p.Rows), p.Total
		p.Release()
		switch {
		case total < 0 || shown < min(total, dictionaryPage) || shown > 0 && after == "":
			return nil, hidden(table, query, shown, total)
		case total <= dictionaryPage:
			return out, nil
		}
	}
}
