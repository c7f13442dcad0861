package dialect

import (
	"fmt"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.yaml.in/yaml/v3"
)

// checkReplay holds against each other what a dialect says of a replay. Kafka's
// dialects leave headers out and that is all.
func (p *parser) checkReplay(n node, d *dialect) {
	rebuilds := !d.wrap.empty() || len(d.edits)+len(d.notices)+len(d.sets) > 0 || d.refusal != ""
	for i := range d.sets {
		if d.sets[i].why == "" {
			d.sets[i].why = d.reasonOf(d.sets[i].name)
		}
		if d.sets[i].why == "" {
			p.fail(n, "set_on_replay: the reason for %s stands neither there nor under strip_on_replay", d.sets[i].name)
		}
	}
	switch {
	case rebuilds && d.broker == Kafka:
		p.fail(n, "a message of Kafka is replayed as it is: only strip_on_replay and keep_on_replay stand here")
	case d.wrap.body != nil && d.wrap.properties == nil:
		p.fail(n, "replay_body needs replay_properties: the wrapper's own are not the message's")
	}
}

func (p *parser) setOnReplay(n node) []setRule {
	var rules []setRule
	p.items(n, func(item node) {
		var r setRule
		var kind string
		var value node
		p.keys(item, map[string]func(node){
			"name": p.text(&r.name), "type": p.oneOf(&kind, "int32", "int64", "longstr", "bool", "table"),
			"value": func(v node) { value = v }, "reason": p.text(&r.why),
		}, "name", "type", "value")
		if value.Node != nil {
			r.value = p.fieldValue(value, kind)
		}
		rules = append(rules, r)
	})
	return rules
}

// fieldValue reads a value of a field table; in a table whole numbers are 32-bit.
func (p *parser) fieldValue(n node, kind string) any {
	var err error
	var value any
	switch kind {
	case "int32":
		var v int64
		v, err = strconv.ParseInt(n.Value, 10, 32)
		value = int32(v)
	case "int64":
		value, err = strconv.ParseInt(n.Value, 10, 64)
	case "bool":
		value, err = strconv.ParseBool(n.Value)
	case "table":
		table := amqp.Table{}
		p.each(n, func(key string, v node) { table[key] = p.fieldValue(v, kindOf(v)) })
		return table
	default:
		value = n.Value
	}
	if n.Kind != yaml.ScalarNode || err != nil {
		p.fail(n, "is no %s", kind)
	}
	return value
}

func kindOf(n node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "table"
	case n.Tag == "!!int":
		return "int32"
	case n.Tag == "!!bool":
		return "bool"
	}
	return "longstr"
}

func (p *parser) replayBody(n node, w *wrap) {
	w.forms = []string{"utf8-text"}
	p.keys(n, map[string]func(node){
		"path": p.path(&w.body),
		"forms": func(v node) {
			w.forms = nil
			p.items(v, func(item node) {
				var form string
				p.oneOf(&form, "utf8-text", "base64")(item)
				w.forms = append(w.forms, form)
			})
		},
	}, "path")
}

func (p *parser) replayProperties(n node, w *wrap) {
	var writer string
	p.keys(n, map[string]func(node){
		"path": p.path(&w.properties), "header": p.text(&w.header), "writer": p.oneOf(&writer, "dotnet"),
	}, "path")
	w.dotnet = writer != ""
}

func (p *parser) bodyRules(n node) []bodyRule {
	var rules []bodyRule
	p.items(n, func(item node) {
		var r bodyRule
		var action string
		p.keys(item, map[string]func(node){"path": p.path(&r.path), "action": p.oneOf(&action, "remove"), "reason": p.text(&r.why)}, "path", "reason")
		for _, s := range r.path {
			if s.kind != byKey {
				p.fail(item, "the path may have keys only")
				return
			}
		}
		r.text = r.path.String()
		rules = append(rules, r)
	})
	return rules
}

// fieldText is a value of a field table for people.
func fieldText(value any) string {
	if t, ok := value.(amqp.Table); ok {
		return fmt.Sprint(map[string]any(t))
	}
	return fmt.Sprint(value)
}
