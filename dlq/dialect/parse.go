package dialect

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"oncemore/internal/strictyaml"
)

// file is one parsed file.
type file struct {
	dialects []entry
	eventIDs []idPlace
}

// entry is a dialect before it is linked with those that it falls back to.
type entry struct {
	dialect
	at *place
}

// place is a position in a file, for messages.
type place struct {
	file string
	line int
	key  string
}

func (p *place) errorf(key, format string, args ...any) error {
	where := fmt.Sprintf("%s:%d: ", p.file, p.line)
	if at := join(p.key, key); at != "" {
		where += at + ": "
	}
	return errors.New(where + fmt.Sprintf(format, args...))
}

func join(path, key string) string {
	if path == "" || key == "" {
		return path + key
	}
	return path + "." + key
}

// parser walks the nodes of one file and gathers what is wrong with them.
type parser struct {
	file     string
	problems []error
}

// node is a value with the path of keys that leads to it.
type node struct {
	*yaml.Node
	key string
}

func parse(name string, text []byte) (file, error) {
	root, err := strictyaml.Document(name, text)
	if err != nil {
		return file{}, err
	}
	p := &parser{file: name}
	if len(root.Content) == 0 {
		return file{}, fmt.Errorf("%s:1: the file is empty", name)
	}
	f := p.root(node{Node: root.Content[0]})
	return f, errors.Join(p.problems...)
}

func (p *parser) fail(n node, format string, args ...any) {
	p.problems = append(p.problems, (&place{p.file, n.Line, n.key}).errorf("", format, args...))
}

// ignore takes what is written for people.
func ignore(node) {}

// keys calls the reader of each key of a mapping; a key without one is a problem.
func (p *parser) keys(n node, readers map[string]func(node), required ...string) {
	seen := map[string]bool{}
	p.each(n, func(key string, v node) {
		read, known := readers[key]
		switch {
		case !known && prose(key, v):
		case !known:
			p.fail(v, "unknown key")
		case seen[key]:
			p.fail(v, "stands there twice")
		default:
			read(v)
		}
		seen[key] = true
	})
	for _, key := range required {
		if n.Kind == yaml.MappingNode && !seen[key] {
			p.fail(n, "%s is missing", key)
		}
	}
}

// prose is what follows a comma in an unquoted text between braces, such as
// {name: x, reason: stale, or worse}: to YAML it is one more key, without a value.
func prose(key string, v node) bool { return v.Tag == "!!null" && strings.Contains(key, " ") }

func (p *parser) each(n node, visit func(key string, v node)) {
	if n.Kind != yaml.MappingNode {
		p.fail(n, "must be a mapping")
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if v.Kind == yaml.AliasNode {
			v = v.Alias
		}
		visit(k.Value, node{v, join(n.key, k.Value)})
	}
}

func (p *parser) items(n node, visit func(node)) {
	if n.Kind != yaml.SequenceNode {
		p.fail(n, "must be a list")
		return
	}
	for i, v := range n.Content {
		if v.Kind == yaml.AliasNode {
			v = v.Alias
		}
		visit(node{v, fmt.Sprintf("%s[%d]", n.key, i)})
	}
}

func (p *parser) text(into *string) func(node) {
	return func(n node) {
		if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || n.Value == "" {
			p.fail(n, "must be text")
			return
		}
		*into = n.Value
	}
}

func (p *parser) texts(into *[]string) func(node) {
	return func(n node) {
		p.items(n, func(item node) {
			var s string
			p.text(&s)(item)
			*into = append(*into, s)
		})
	}
}

func (p *parser) oneOf(into *string, choices ...string) func(node) {
	return func(n node) {
		if n.Kind != yaml.ScalarNode || !slices.Contains(choices, n.Value) {
			p.fail(n, "%q is none of %s", n.Value, strings.Join(choices, ", "))
			return
		}
		*into = n.Value
	}
}

func (p *parser) number(into *int64) func(node) {
	return func(n node) {
		v, err := strconv.ParseInt(n.Value, 10, 64)
		if n.Kind != yaml.ScalarNode || err != nil {
			p.fail(n, "must be a whole number")
			return
		}
		*into = v
	}
}

// pattern compiles an expression; groups is how many it must have at least.
func (p *parser) pattern(into **regexp.Regexp, groups int) func(node) {
	return func(n node) {
		re, err := regexp.Compile(n.Value)
		switch {
		case n.Kind != yaml.ScalarNode || err != nil:
			p.fail(n, "is no RE2 expression: %v", err)
		case re.NumSubexp() < groups:
			p.fail(n, "has no group 1, which is the value")
		default:
			*into = re
		}
	}
}

func (p *parser) root(n node) file {
	var f file
	var version string
	p.keys(n, map[string]func(node){
		"version":              p.oneOf(&version, "1"),
		"checked":              ignore,
		"schema":               ignore,
		"encodings":            p.knownEncodings,
		"general_rules":        ignore,
		"without_dead_letters": ignore,
		"other_brokers_fyi":    ignore,
		"samples":              ignore,
		"event_id_headers":     func(v node) { f.eventIDs = p.eventIDHeaders(v) },
		"dialects": func(v node) {
			p.items(v, func(item node) { f.dialects = append(f.dialects, p.dialect(item)) })
		},
	}, "version")
	p.uniqueIDs(f.dialects)
	return f
}

func (p *parser) uniqueIDs(entries []entry) {
	seen := map[string]int{}
	for _, e := range entries {
		if line, twice := seen[e.id]; twice {
			p.problems = append(p.problems, e.at.errorf("id", "%q also stands on line %d", e.id, line))
		}
		seen[e.id] = e.at.line
	}
}

func (p *parser) knownEncodings(n node) {
	p.each(n, func(key string, v node) {
		if _, ok := encodings[key]; !ok {
			p.fail(v, "this version does not read such an encoding")
		}
	})
}

func (p *parser) dialect(n node) entry {
	e := entry{at: &place{p.file, n.Line, n.key}}
	if p.file != builtinName {
		e.file = p.file
	}
	var priority int64
	p.keys(n, map[string]func(node){
		"id":                  p.text(&e.id),
		"name":                p.text(&e.name),
		"broker":              p.oneOf(&e.broker, Kafka, RabbitMQ),
		"priority":            p.number(&priority),
		"falls_back_to":       p.text(&e.fallsBackTo),
		"record_timestamp_is": p.oneOf(&e.recordTime, "failed_at", "origin_timestamp", "unknown"),
		"detect":              func(v node) { e.detect = p.detect(v) },
		"fields":              func(v node) { e.fields = p.fields(v) },
		"dlq_naming":          p.naming,
		"strip_on_replay":     func(v node) { e.strip = p.stripRules(v) },
		"keep_on_replay":      p.texts(&e.keep),
		"set_on_replay":       func(v node) { e.sets = p.setOnReplay(v) },
		"replay_body":         func(v node) { p.replayBody(v, &e.wrap) },
		"replay_properties":   func(v node) { p.replayProperties(v, &e.wrap) },
		"edit_body_on_replay": func(v node) { e.edits = p.bodyRules(v) },
		"notice_on_replay":    func(v node) { e.notices = p.bodyRules(v) },
		"refuse_replay":       p.text(&e.refusal),
		"since":               ignore,
		"notes":               ignore,
		"source":              ignore,
		"x_death_entry":       ignore,
	}, "id", "name", "broker", "priority", "detect", "fields", "strip_on_replay")
	e.priority = int(priority)
	p.checkReplay(n, &e.dialect)
	if e.broker != "" && e.detect.empty() != (e.id == e.broker+unknownSuffix) {
		p.fail(node{n.Node, join(n.key, "detect")}, "only %s%s matches everything", e.broker, unknownSuffix)
	}
	return e
}

func (p *parser) detect(n node) detect {
	var d detect
	p.keys(n, map[string]func(node){
		"any_header":    p.texts(&d.anyHeader),
		"all_headers":   p.texts(&d.allHeaders),
		"header_prefix": p.texts(&d.headerPrefix),
		"none_header":   p.texts(&d.noneHeader),
		"source_regex":  p.pattern(&d.source, 0),
		"body_keys":     p.texts(&d.bodyKeys),
		"body_regex":    p.pattern(&d.body, 0),
		"property_prefix": func(v node) {
			p.keys(v, map[string]func(node){"name": p.text(&d.property.name), "value": p.text(&d.property.value)}, "name", "value")
		},
	})
	return d
}

func (p *parser) fields(n node) []field {
	var fields []field
	p.each(n, func(key string, v node) {
		if _, known := fieldKinds[key]; !known {
			p.fail(v, "unknown field")
			return
		}
		f := field{name: key}
		p.items(v, func(item node) { f.candidates = append(f.candidates, p.locator(item)) })
		fields = append(fields, f)
	})
	return fields
}

// sources are the values of from, with the keys each needs.
var sources = map[string]struct {
	from     from
	required []string
}{
	"header":   {fromHeader, []string{"name"}},
	"property": {fromProperty, []string{"name"}},
	"body":     {fromBody, []string{"path"}},
	"source":   {fromSource, []string{"name"}},
	"const":    {fromConst, []string{"value"}},
}

var attributes = []string{"topic", "partition", "offset", "timestamp_ms", "queue", "exchange", "routing_key"}

func (p *parser) locator(n node) locator {
	l := locator{enc: text}
	var from, enc, pick, reduce string
	p.keys(n, map[string]func(node){
		"from":    p.oneOf(&from, "header", "property", "body", "source", "const"),
		"name":    p.text(&l.name),
		"enc":     p.text(&enc),
		"pick":    p.oneOf(&pick, "first", "last"),
		"path":    p.path(&l.path),
		"re":      p.locatorPattern(&l),
		"where":   p.where(&l.where),
		"reduce":  p.oneOf(&reduce, reductions...),
		"add":     p.number(&l.add),
		"prefix":  p.text(&l.prefix),
		"value":   func(v node) { l.value = p.constant(v) },
		"derived": ignore,
	}, append([]string{"from"}, sources[p.fromOf(n)].required...)...)
	l.from, l.first, l.reduce = sources[from].from, pick == "first", reduction(reduce)
	p.checkLocator(n, &l, enc)
	return l
}

func (p *parser) fromOf(n node) string {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == "from" {
			return n.Content[i+1].Value
		}
	}
	return ""
}

func (p *parser) checkLocator(n node, l *locator, enc string) {
	if enc != "" {
		known := false
		if l.enc, known = encodings[enc]; !known {
			p.fail(node{n.Node, join(n.key, "enc")}, "unknown encoding %q", enc)
			l.enc = text
		}
	}
	if l.from == fromSource && !slices.Contains(attributes, l.name) {
		p.fail(node{n.Node, join(n.key, "name")}, "%q is none of %s", l.name, strings.Join(attributes, ", "))
	}
	structured := l.from == fromBody || l.from == fromHeader && slices.Contains([]string{"json", "amqp-array", "amqp-table"}, enc)
	if l.path != nil && !structured {
		p.fail(node{n.Node, join(n.key, "path")}, "needs an encoding with parts: json, amqp-array or amqp-table")
	}
	if spreads := l.path.spreads(); spreads != (l.reduce != "") {
		p.fail(node{n.Node, join(n.key, "reduce")}, "stands with [*] in the path, and only there")
	} else if len(l.where) > 0 && !spreads {
		p.fail(node{n.Node, join(n.key, "where")}, "needs [*] in the path")
	}
}

func (p *parser) path(into *path) func(node) {
	return func(n node) {
		parsed, err := parsePath(n.Value)
		if err != nil {
			p.fail(n, "%v", err)
		}
		*into = parsed
	}
}

// locatorPattern compiles re at once, unless a field of the message goes into it;
// then it is tried with a harmless one.
func (p *parser) locatorPattern(l *locator) func(node) {
	return func(n node) {
		l.reText = n.Value
		var re *regexp.Regexp
		p.pattern(&re, 1)(node{&yaml.Node{Kind: n.Kind, Line: n.Line, Value: reference.ReplaceAllString(n.Value, "x")}, n.key})
		if !hasReference(n.Value) {
			l.re = re
		}
	}
}

func (p *parser) where(into *map[string]string) func(node) {
	return func(n node) {
		*into = map[string]string{}
		p.each(n, func(key string, v node) {
			var s string
			p.text(&s)(v)
			(*into)[key] = s
		})
	}
}

func (p *parser) constant(n node) any {
	if n.Kind != yaml.ScalarNode {
		p.fail(n, "must be text or a number")
		return nil
	}
	if v, ok := decimal(n.Value); ok && n.Tag == "!!int" {
		return v
	}
	return n.Value
}

func (p *parser) naming(n node) {
	p.items(n, func(item node) {
		var re *regexp.Regexp
		p.keys(item, map[string]func(node){"regex": p.pattern(&re, 0), "note": ignore}, "regex")
	})
}

func (p *parser) stripRules(n node) []stripRule {
	var rules []stripRule
	p.items(n, func(item node) {
		var r stripRule
		p.keys(item, map[string]func(node){"name": p.text(&r.name), "prefix": p.text(&r.prefix), "reason": p.text(&r.reason)})
		if (r.name == "") == (r.prefix == "") {
			p.fail(item, "needs either name or prefix")
			return
		}
		rules = append(rules, r)
	})
	return rules
}

func (p *parser) eventIDHeaders(n node) []idPlace {
	var list []idPlace
	p.keys(n, map[string]func(node){
		"rules": ignore, "notes": ignore, "not_an_event_id": ignore,
		"list": func(v node) {
			p.items(v, func(item node) { list = append(list, p.idPlace(item)) })
		},
	}, "list")
	return list
}

func (p *parser) idPlace(n node) idPlace {
	var where string
	var at idPlace
	p.keys(n, map[string]func(node){
		"where": p.oneOf(&where, "header", "property", "body"), "name": p.text(&at.name), "path": p.path(&at.path),
		"requires_keys": p.texts(&at.requires), "brokers": p.texts(&at.brokers), "used_by": ignore, "source": ignore,
	}, "where", "brokers")
	at.where = sources[where].from
	if where == "body" && at.path == nil || where != "body" && at.name == "" {
		p.fail(n, "needs a path for a body, a name for a header or property")
	}
	return at
}
