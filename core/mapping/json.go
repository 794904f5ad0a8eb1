package mapping

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// object is a JSON object in the order in which it came, numbers with every digit.
type object struct {
	names  []string
	values map[string]any
}

func (o *object) get(name string) (any, bool) {
	v, ok := o.values[name]
	return v, ok
}

func (o *object) set(name string, v any) {
	if _, ok := o.values[name]; !ok {
		o.names = append(o.names, name)
	}
	o.values[name] = v
}

func newObject() *object { return &object{values: map[string]any{}} }

// decodeObject reads exactly one JSON object.
func decodeObject(raw []byte) (*object, error) {
	v, err := decode(raw)
	if err != nil {
		return nil, err
	}
	o, ok := v.(*object)
	if !ok {
		return nil, fmt.Errorf("a JSON object was expected, not %s", kindOf(v))
	}
	return o, nil
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case []any:
		return "an array"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case *object:
		return "an object"
	}
	return "a number"
}

// decode reads one JSON value with nothing behind it; a name twice in one object is an error.
func decode(raw []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	v, err := value(dec, 0)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("text behind the end of the value")
	}
	return v, nil
}

// maxDepth bounds nesting.
const maxDepth = 200

func value(dec *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested deeper than %d", maxDepth)
	}
	t, err := dec.Token()
	if err != nil {
		return nil, fmt.Errorf("reading JSON: %w", err)
	}
	switch t {
	case json.Delim('{'):
		o := newObject()
		for dec.More() {
			name, err := dec.Token()
			if err != nil {
				return nil, fmt.Errorf("reading JSON: %w", err)
			}
			key, _ := name.(string)
			if _, twice := o.values[key]; twice {
				return nil, fmt.Errorf("the name %q stands twice in one object", key)
			}
			v, err := value(dec, depth+1)
			if err != nil {
				return nil, err
			}
			o.set(key, v)
		}
		_, err = dec.Token()
		return o, err
	case json.Delim('['):
		list := []any{}
		for dec.More() {
			v, err := value(dec, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = dec.Token()
		return list, err
	}
	return t, nil
}

// MarshalJSON writes the object in its order.
func (o *object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range o.names {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := encode(&b, name); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := encode(&b, o.values[name]); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func encode(b *bytes.Buffer, v any) error {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	b.Truncate(b.Len() - 1) // Encode ends with a line break
	return nil
}
