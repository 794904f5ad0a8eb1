package config

import (
	"fmt"
	"slices"
	"strings"
)

// The classes of the connectors whose files are accepted as they are.
const (
	sourceClass = "sh.oso.servicenow.source.ServiceNowSourceConnector"
	sinkClass   = "sh.oso.servicenow.sink.ServiceNowSinkConnector"
)

// withoutEffect are the keys of Connect's workers: accepted, and said to do nothing.
var withoutEffect = []string{"tasks.max", "errors.log.", "errors.retry.", "config.action.reload"}

// converters maps Connect's converters to formats.
var converters = map[string]string{
	"org.apache.kafka.connect.json.JsonConverter":      "json_schema_envelope",
	"org.apache.kafka.connect.storage.StringConverter": "json",
	"io.confluent.connect.avro.AvroConverter":          "avro",
	"io.confluent.connect.protobuf.ProtobufConverter":  "protobuf",
	"io.confluent.connect.json.JsonSchemaConverter":    "jsonschema",
}

// connectLayer turns a Kafka Connect connector file, flat or as {"name","config"},
// into one pipeline; every other layer passes unchanged. What is wrong with it is
// collected, what has no effect here is noted.
func (l *layers) connectLayer(file string, layer map[string]any) map[string]any {
	if c, ok := layer["config"].(map[string]any); ok && c["connector.class"] != nil {
		if layer["name"] != nil {
			c["name"] = layer["name"]
		}
		layer = c
	}
	if layer["connector.class"] == nil {
		return layer
	}
	fail := func(key string, v any, problem, allowed string) {
		p := Problem{Key: file + ": " + key, Problem: problem, Allowed: allowed}
		if v != nil {
			p.Value = fmt.Sprint(v)
		}
		l.problems = append(l.problems, p)
	}
	var side string
	switch class := layer["connector.class"]; class {
	case sourceClass:
		side = "sources"
	case sinkClass:
		side = "sinks"
	default:
		fail("connector.class", class, "a connector that is not read here", sourceClass+" or "+sinkClass)
		return nil
	}
	name, _ := layer["name"].(string)
	if name == "" {
		fail("name", nil, "a connector file needs a name; it becomes the pipeline's", "")
		return nil
	}
	out := map[string]any{}
	for _, k := range slices.Sorted(mapKeys(layer)) {
		key, value, problem := connectKey(layer, k)
		switch {
		case problem != "":
			fail(k, layer[k], problem, "")
		case key == "" && hasPrefix(k, withoutEffect):
			l.notes = append(l.notes, fmt.Sprintf("%s: %s has no effect here", file, k))
		case key == "":
		case out[key] != nil:
			fail(k, layer[k], "means "+key+", which is given, too", "")
		default:
			out[key] = value
		}
	}
	return map[string]any{side: map[string]any{name: out}}
}

// connectKey returns what a key of a connector file is called here; "" when it is nothing.
func connectKey(layer map[string]any, k string) (key string, value any, problem string) {
	v := layer[k]
	what, rest, isConverter := strings.Cut(k, ".converter")
	isConverter = isConverter && (what == "value" || what == "key")
	switch {
	case k == "name", k == "connector.class", hasPrefix(k, withoutEffect):
		return "", nil, ""
	case k == "transforms" || k == "predicates" || strings.HasPrefix(k, "transforms.") || strings.HasPrefix(k, "predicates."):
		return "", nil, "Connect's transformations do not run here; the nearest equivalent is `transformations` (rename, drop, keep, set, jq, js)"
	case strings.HasPrefix(k, "producer.override."), strings.HasPrefix(k, "consumer.override."):
		_, setting, _ := strings.Cut(k, ".override.")
		return "kafka." + setting, v, ""
	case isConverter && rest == "":
		format, ok := converters[fmt.Sprint(v)]
		if !ok {
			return "", nil, "this converter has no equivalent here; the formats are json, json_schema_envelope, avro, jsonschema, protobuf"
		}
		if format == "json_schema_envelope" && fmt.Sprint(layer[k+".schemas.enable"]) == "false" {
			format = "json"
		}
		if what == "key" && format == "json" && strings.HasSuffix(fmt.Sprint(v), ".StringConverter") {
			format = "string"
		}
		return what + ".format", format, ""
	case isConverter && rest == ".schemas.enable":
		return "", nil, "" // read with the converter
	case isConverter && strings.HasPrefix(rest, "."):
		return what + ".format" + rest, v, ""
	}
	return k, v, ""
}

func hasPrefix(s string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}
