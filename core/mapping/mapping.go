// Package mapping turns a record into a write request: which table, which row,
// which operation, which body (sink.md section 1). It is pure: record in, write
// request or typed error out.
package mapping

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"snowmelt/core/failure"
	"snowmelt/core/record"
)

// Operation is what is done to a row.
type Operation string

// The operations.
const (
	Create Operation = "CREATE"
	Patch  Operation = "PATCH"
	Put    Operation = "PUT"
	Delete Operation = "DELETE"
)

// HeaderSysID is the header that may carry the id.
const HeaderSysID = "snow.sys_id"

// Settings are the policies of one sink.
type Settings struct {
	// Table is the target of fixed routing.
	Table string
	// OperationMode is key_value, header or fixed; Fixed is the operation of mode fixed.
	OperationMode string
	Fixed         Operation
	// OperationHeader names the header that wins when present; HeaderRequired fails records without it.
	OperationHeader string
	HeaderRequired  bool
	// UpdateMethod is Patch or Put.
	UpdateMethod Operation
	// KeyField and ValueField hold the id in an object key and in the value.
	KeyField, ValueField string
	// Precedence is reject, key or value.
	Precedence string
	IDPattern  *regexp.Regexp
	// Null is omit, clear or reject; Nested reject, flatten or stringify; Unknown fail, drop, report or passthrough.
	Null, Nested, Delimiter, Unknown string
	// Rename holds from, to pairs in their order.
	Rename      [][2]string
	Allow, Deny []string
	// TableHeader is stripped from bodies like the other reserved names.
	TableHeader string
}

// Write is a request to be sent.
type Write struct {
	Operation Operation
	Table     string
	// SysID is empty for a create that leaves the id to the instance.
	SysID string
	// Body is the JSON object to send, nil for a delete.
	Body []byte
	// Unknown names fields that the table does not have, under policy report or drop.
	Unknown []string
}

// bad returns a record error.
func bad(in *record.Consumed, format string, args ...any) error {
	return &failure.Error{Class: failure.RecordError, Op: "mapping " + in.Place(), Detail: fmt.Sprintf(format, args...)}
}

// Target says what a record is meant to do, before its body is looked at.
type Target struct {
	Operation Operation
	SysID     string
}

// Resolve finds operation and id: the operation header, else the fixed
// operation, else what the record looks like.
func (s Settings) Resolve(in *record.Consumed) (Target, error) {
	op, known, err := s.operation(in)
	if err != nil {
		return Target{}, err
	}
	if known && op == Create {
		if in.Value == nil {
			return Target{}, bad(in, "a create needs a value, this record has none")
		}
		return Target{Operation: Create}, nil // any key will do
	}
	id, err := s.identify(in)
	if err != nil {
		return Target{}, err
	}
	if !known {
		switch {
		case in.Value == nil:
			op = Delete
		case id == "":
			return Target{Operation: Create}, nil
		default:
			op = s.UpdateMethod
		}
	} else if op == upsert {
		if op = s.UpdateMethod; id == "" {
			if in.Value == nil {
				return Target{}, bad(in, "an upsert needs a value, this record has none")
			}
			return Target{Operation: Create}, nil
		}
	}
	switch {
	case id == "":
		return Target{}, bad(in, "%s needs a sys_id: neither key, field %q of the value nor header %s holds one", op, s.ValueField, HeaderSysID)
	case op != Delete && in.Value == nil:
		return Target{}, bad(in, "%s needs a value, this record has none", op)
	}
	return Target{op, id}, nil
}

// upsert is an update with an id, else a create.
const upsert Operation = "UPSERT"

func (s Settings) operation(in *record.Consumed) (op Operation, known bool, err error) {
	if h, ok := in.Header(s.OperationHeader); ok {
		switch v := strings.ToUpper(strings.TrimSpace(h)); v {
		case "CREATE", "POST":
			return Create, true, nil
		case "PATCH", "PUT", "DELETE":
			return Operation(v), true, nil
		case "UPDATE":
			return s.UpdateMethod, true, nil
		case "UPSERT":
			return upsert, true, nil
		}
		return "", false, bad(in, "header %s holds %.40q; want CREATE, POST, PATCH, PUT, UPDATE, DELETE or UPSERT", s.OperationHeader, h)
	}
	switch s.OperationMode {
	case "header":
		if s.HeaderRequired {
			return "", false, bad(in, "header %s is missing", s.OperationHeader)
		}
	case "fixed":
		return s.Fixed, true, nil
	}
	return "", false, nil
}

// identify compares the places where an id may stand.
func (s Settings) identify(in *record.Consumed) (string, error) {
	type source struct{ name, id string }
	var found []source
	add := func(name, raw string) error {
		id := strings.ToLower(strings.TrimSpace(raw))
		if id == "" {
			return nil
		}
		if !s.IDPattern.MatchString(id) {
			return bad(in, "the %s %.60q is no sys_id (pattern %s)", name, id, s.IDPattern)
		}
		found = append(found, source{name, id})
		return nil
	}
	key, err := s.keyID(in)
	if err != nil {
		return "", err
	}
	if err := add("key", key); err != nil {
		return "", err
	}
	if len(in.Value) > 0 {
		// A value that is no object is reported when the body is mapped.
		if fields, err := decodeObject(in.Value); err == nil {
			if v, ok := fields.get(s.ValueField); ok && v != nil {
				text, ok := v.(string)
				if !ok {
					return "", bad(in, "field %s of the value holds no text", s.ValueField)
				}
				if err := add("field "+s.ValueField, text); err != nil {
					return "", err
				}
			}
		}
	}
	if h, ok := in.Header(HeaderSysID); ok {
		if err := add("header "+HeaderSysID, h); err != nil {
			return "", err
		}
	}
	if len(found) == 0 {
		return "", nil
	}
	if i := slices.IndexFunc(found, func(f source) bool { return f.id != found[0].id }); i >= 0 {
		want := map[string]string{"key": "key", "value": "field " + s.ValueField}[s.Precedence]
		for _, f := range found {
			if f.name == want {
				return f.id, nil
			}
		}
		return "", bad(in, "the %s says %s, the %s says %s (snow.sink.sys.id.precedence=%s)", found[0].name, found[0].id, found[i].name, found[i].id, s.Precedence)
	}
	return found[0].id, nil
}

// keyID returns the id that a key holds: text is the id itself, an object has it in a field.
func (s Settings) keyID(in *record.Consumed) (string, error) {
	text := strings.TrimSpace(string(in.Key))
	switch {
	case strings.HasPrefix(text, "{"):
		fields, err := decodeObject([]byte(text))
		if err != nil {
			return "", bad(in, "the key is no JSON object: %v", err)
		}
		v, ok := fields.get(s.KeyField)
		if !ok || v == nil {
			return "", nil
		}
		id, ok := v.(string)
		if !ok {
			return "", bad(in, "field %s of the key holds no text", s.KeyField)
		}
		return id, nil
	case strings.HasPrefix(text, `"`):
		v, err := decode([]byte(text))
		if id, ok := v.(string); err == nil && ok {
			return id, nil
		}
	}
	return text, nil
}
