package mapping

import (
	"bytes"
	"slices"
	"strings"

	"snowmelt/core/record"
)

// maxBody is what an instance takes: larger bodies are answered "Rejected large REST payload".
const maxBody = 10 << 20

// reserved are fields that the instance keeps itself.
var reserved = []string{"sys_id", "sys_created_on", "sys_updated_on", "sys_mod_count", "sys_created_by", "sys_updated_by"}

// Map makes the write request of a record whose target is resolved. fields are
// the names of the table's columns, nil under policy passthrough.
func (s Settings) Map(in *record.Consumed, t Target, fields map[string]bool) (Write, error) {
	w := Write{Operation: t.Operation, Table: s.Table, SysID: t.SysID}
	if t.Operation == Delete {
		return w, nil
	}
	src, err := decodeObject(in.Value)
	if err != nil {
		return Write{}, bad(in, "the value cannot be mapped: %v", err)
	}
	if src, err = s.rename(in, src); err != nil {
		return Write{}, err
	}
	out := newObject()
	for _, name := range src.names {
		if len(s.Allow) > 0 && !slices.Contains(s.Allow, name) || slices.Contains(s.Deny, name) {
			continue
		}
		if err := s.field(in, out, name, name, src.values[name]); err != nil {
			return Write{}, err
		}
	}
	if err := s.unknown(in, &w, out, fields); err != nil {
		return Write{}, err
	}
	var b bytes.Buffer
	if err := encode(&b, out); err != nil {
		return Write{}, bad(in, "the body cannot be formed: %v", err)
	}
	if b.Len() > maxBody {
		return Write{}, bad(in, "the body has %d bytes, the instance takes %d", b.Len(), maxBody)
	}
	w.Body = b.Bytes()
	return w, nil
}

func (s Settings) rename(in *record.Consumed, src *object) (*object, error) {
	if len(s.Rename) == 0 {
		return src, nil
	}
	to := map[string]string{}
	for _, pair := range s.Rename {
		to[pair[0]] = pair[1]
	}
	out := newObject()
	for _, name := range src.names {
		renamed := name
		if n, ok := to[name]; ok {
			renamed = n
		}
		if _, taken := out.get(renamed); taken {
			return nil, bad(in, "after renaming, two fields are called %q", renamed)
		}
		out.set(renamed, src.values[name])
	}
	return out, nil
}

// isReserved says whether a field is stripped; the allow list may name it.
func (s Settings) isReserved(name string) bool {
	if slices.Contains(s.Allow, name) {
		return false
	}
	return slices.Contains(reserved, name) || name == s.OperationHeader || name == s.TableHeader || name == HeaderSysID
}

// field adds one field under the null and nested policies; path names it in errors.
func (s Settings) field(in *record.Consumed, out *object, name, path string, v any) error {
	if s.isReserved(name) {
		return nil
	}
	switch x := v.(type) {
	case nil:
		switch s.Null {
		case "omit":
			return nil
		case "clear":
			v = ""
		default:
			return bad(in, "field %s is null (snow.sink.null.behavior=reject)", path)
		}
	case *object, []any:
		switch s.Nested {
		case "stringify":
			var b bytes.Buffer
			if err := encode(&b, x); err != nil {
				return bad(in, "field %s: %v", path, err)
			}
			v = b.String()
		case "flatten":
			o, ok := x.(*object)
			if !ok {
				return bad(in, "field %s is an array, which cannot be flattened", path)
			}
			for _, inner := range o.names {
				if err := s.field(in, out, name+s.Delimiter+inner, path+"."+inner, o.values[inner]); err != nil {
					return err
				}
			}
			return nil
		default:
			return bad(in, "field %s is %s (snow.sink.nested.behavior=reject)", path, kindOf(x))
		}
	}
	if _, taken := out.get(name); taken {
		return bad(in, "field %s makes the name %q a second time", path, name)
	}
	out.set(name, v)
	return nil
}

// unknown applies the policy for fields that the table does not have.
func (s Settings) unknown(in *record.Consumed, w *Write, out *object, fields map[string]bool) error {
	if s.Unknown == "passthrough" || fields == nil {
		return nil
	}
	var names []string
	for _, name := range out.names {
		if !fields[name] {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	switch s.Unknown {
	case "drop", "report":
		if s.Unknown == "report" {
			w.Unknown = names
		}
		out.names = slices.DeleteFunc(out.names, func(n string) bool { return slices.Contains(names, n) })
		for _, n := range names {
			delete(out.values, n)
		}
		return nil
	}
	return bad(in, "table %s has no field %s (snow.sink.unknown.field.behavior=fail)", w.Table, strings.Join(names, ", "))
}

// WithID returns a body that also carries a sys_id, for a create in place of an
// update whose row is not there.
func WithID(body []byte, id string) ([]byte, error) {
	o, err := decodeObject(body)
	if err != nil {
		return nil, err
	}
	o.set("sys_id", id)
	var b bytes.Buffer
	err = encode(&b, o)
	return b.Bytes(), err
}
