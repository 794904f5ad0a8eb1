package config

import (
	"fmt"
	"strings"
)

// The classes of the connectors whose files are accepted as they are.
const (
	sourceClass = "sh.oso.servicenow.source.ServiceNowSourceConnector"
	sinkClass   = "sh.oso.servicenow.sink.ServiceNowSinkConnector"
)

// withoutEffect are the keys of Connect's workers: accepted, and said to do nothing.
var withoutEffect = []string{"tasks.max", "errors.log.", "errors.retry.", "config.action.reload", "tasks.max.enforce"}

// converters maps Connect's converters to formats.
var converters = map[string]string{
	"org.apache.kafka.connect.json.JsonConverter":      "json_schema_envelope",
	"org.apache.kafka.connect.storage.StringConverter": "json",
	"io.confluent.connect.avro.AvroConverter":          "avro",
	"io.confluent.connect.protobuf.ProtobufConverter":  "protobuf",
	"io.confluent.connect.json.JsonSchemaConverter":    "jsonschema",
}

// connectLayer turns a Kafka Connect connector file, flat or as {"name","config"},
// into one pipeline; every other layer passes unchanged.
func connectLayer(layer map[string]any) (map[string]any, error) {
	if c, ok := layer["config"].(map[string]any); ok && layer["name"] != nil {
		c["name"] = layer["name"]
		layer = c
	}
	class, ok := layer["connector.class"].(string)
	if !ok {
		return layer, nil
	}
	side := ""
	switch class {
	case sourceClass:
		side = "sources"
	case sinkClass:
		side = "sinks"
	default:
		return nil, fmt.Errorf("connector.class %s is not read here; only %s and %s", class, sourceClass, sinkClass)
	}
	name := fmt.Sprint(layer["name"])
	if layer["name"] == nil || name == "" {
		return nil, fmt.Errorf("a connector file needs a name")
	}
	out := map[string]any{}
	for k, v := range layer {
		if err := connectKey(out, layer, k, v); err != nil {
			return nil, err
		}
	}
	return map[string]any{side: map[string]any{name: out}}, nil
}

func connectKey(out, layer map[string]any, k string, v any) error {
	switch {
	case k == "name" || k == "connector.class":
	case hasPrefix(k, withoutEffect):
	case k == "transforms" || k == "predicates" || strings.HasPrefix(k, "transforms.") || strings.HasPrefix(k, "predicates."):
		return fmt.Errorf("%s: Connect's transformations do not run here; the nearest equivalent is `transformations` (rename, drop, keep, set, jq, js)", k)
	case strings.HasPrefix(k, "producer.override."), strings.HasPrefix(k, "consumer.override."):
		_, rest, _ := strings.Cut(k, ".override.")
		out["kafka."+rest] = v
	case k == "value.converter", k == "key.converter":
		format, ok := converters[fmt.Sprint(v)]
		if !ok {
			return fmt.Errorf("%s: converter %v has no equivalent here; the formats are %s", k, v, "json, json_schema_envelope, avro, jsonschema, protobuf")
		}
		what := strings.TrimSuffix(k, ".converter")
		if format == "json_schema_envelope" && fmt.Sprint(layer[k+".schemas.enable"]) == "false" {
			format = "json"
		}
		if k == "key.converter" && fmt.Sprint(v) == "org.apache.kafka.connect.storage.StringConverter" {
			format = "string"
		}
		out[what+".format"] = format
	case strings.HasSuffix(k, ".converter.schemas.enable"):
	case strings.HasPrefix(k, "value.converter."):
		out["value.format."+strings.TrimPrefix(k, "value.converter.")] = v
	case strings.HasPrefix(k, "key.converter."):
		out["key.format."+strings.TrimPrefix(k, "key.converter.")] = v
	default:
		out[k] = v
	}
	return nil
}

func hasPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}
