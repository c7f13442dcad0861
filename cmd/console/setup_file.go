package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"go.yaml.in/yaml/v3"

	"oncemore/internal/access"
	"oncemore/internal/audit"
	"oncemore/internal/config"
	"oncemore/web"
)

// configName is what clusters and connections may be called.
var configName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,62}$`)

// composed is a config as it would be written, with the files beside it that hold
// its secrets.
type composed struct {
	path    string
	text    []byte
	secrets []secretFileOf
}

type secretFileOf struct{ path, value string }

// File is part of web.Setup.
func (s *setup) File() (web.SetupFile, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	made, err := s.compose()
	if err != nil {
		return web.SetupFile{}, err
	}
	f := web.SetupFile{Path: made.path, Text: string(made.text)}
	for _, secret := range made.secrets {
		f.Secrets = append(f.Secrets, secret.path)
	}
	return f, nil
}

// compose adds the draft to the file as it stands: what is in it, comments too,
// stays.
func (s *setup) compose() (composed, error) {
	path, err := filepath.Abs(s.app.conf.File)
	if err != nil {
		return composed{}, err
	}
	made := composed{path: path}
	old, err := os.ReadFile(path)
	if err != nil {
		return made, &web.SetupTrouble{Words: cause(err).Error(), Hint: "setup.hint.write"}
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(old, &doc); err != nil || len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return made, &web.SetupTrouble{Words: s.app.conf.File, Hint: "setup.hint.file"}
	}
	root := doc.Content[0]
	put(section(root, "clusters", yaml.MappingNode), s.broker.Name, s.clusterNode(&made))
	s.addSources(section(root, "sources", yaml.SequenceNode))
	if len(s.draft.Evidence) > 0 {
		put(section(root, "connections", yaml.MappingNode), s.database.Name, made.connectionNode(s.database))
		s.addGroups(section(root, "groups", yaml.MappingNode))
	}
	var out strings.Builder
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return made, fmt.Errorf("write the config: %w", err)
	}
	made.text = []byte(out.String())
	if _, err := config.Parse(s.app.conf.File, made.text); err != nil {
		return made, &web.SetupTrouble{Words: err.Error(), Hint: "setup.hint.file"}
	}
	return made, nil
}

func (s *setup) clusterNode(made *composed) *yaml.Node {
	b := s.broker
	if b.Kind == "rabbitmq" {
		rabbit := mapping("url_file", made.secret(b.Name+".amqp", b.URL))
		if b.ManagementURL != "" {
			put(rabbit, "management_url_file", text(made.secret(b.Name+".management", b.ManagementURL)))
		}
		return mappingOf("rabbit", rabbit)
	}
	brokers := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, addr := range splitBrokers(b.Brokers) {
		brokers.Content = append(brokers.Content, text(addr))
	}
	kafka := mappingOf("brokers", brokers)
	if b.TLS {
		put(kafka, "tls", &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle})
	}
	if b.Mechanism != "" {
		put(kafka, "sasl", mapping("mechanism", b.Mechanism, "user_file", made.secret(b.Name+".user", b.User), "password_file", made.secret(b.Name+".password", b.Password)))
	}
	return mappingOf("kafka", kafka)
}

func (made *composed) connectionNode(d web.SetupDatabase) *yaml.Node {
	return mapping("kind", d.Kind, "url_file", made.secret(d.Name+".url", d.URL))
}

// secret keeps a value for a file of its own, and gives that file's path.
func (made *composed) secret(name, value string) string {
	path := filepath.Join(filepath.Dir(made.path), "secrets", name)
	made.secrets = append(made.secrets, secretFileOf{path, value})
	return path
}

func (s *setup) addSources(list *yaml.Node) {
	for _, name := range s.draft.Sources.Names {
		one := mapping("cluster", s.broker.Name, "pattern", name)
		if s.draft.Sources.Copy && s.broker.Kind == "rabbitmq" {
			put(one, "mode", text("copy"))
		}
		id := &yaml.Node{Kind: yaml.MappingNode}
		if h := s.draft.Sources.Header; h != "" {
			put(id, "header", text(h))
		}
		if j := s.draft.Sources.JSON; j != "" {
			put(id, "json", text(j))
		}
		if len(id.Content) > 0 {
			put(one, "event_id", id)
		}
		list.Content = append(list.Content, one)
	}
}

func (s *setup) addGroups(groups *yaml.Node) {
	none := func(column string) string {
		if column == "" {
			return "none"
		}
		return column
	}
	for _, e := range s.draft.Evidence {
		evidence := mapping("connection", s.database.Name, "table", e.Table, "event_id", e.EventID, "consumer_group", none(e.GroupColumn), "consumed_at", none(e.ConsumedAt))
		since := text(e.Since)
		since.LineComment = "no record is missing since then"
		put(evidence, "complete_since", since)
		group := mappingOf("evidence", evidence)
		effect := text("local")
		effect.LineComment = "external, if the group acts on another system"
		put(group, "effect", effect)
		put(groups, e.Group, group)
	}
}

// section is the value of a key at the top, made where it is missing or empty.
func section(root *yaml.Node, key string, kind yaml.Kind) *yaml.Node {
	if i := slices.IndexFunc(keysOf(root), func(n *yaml.Node) bool { return n.Value == key }); i >= 0 {
		value := root.Content[2*i+1]
		if value.Kind == kind {
			value.Style = 0 // grown, it reads better as a block
			return value
		}
		*value = yaml.Node{Kind: kind}
		return value
	}
	value := &yaml.Node{Kind: kind}
	root.Content = append(root.Content, text(key), value)
	return value
}

func keysOf(mapping *yaml.Node) (keys []*yaml.Node) {
	for i := 0; i < len(mapping.Content); i += 2 {
		keys = append(keys, mapping.Content[i])
	}
	return keys
}

// put sets a key, in the place of what it had.
func put(mapping *yaml.Node, key string, value *yaml.Node) {
	if i := slices.IndexFunc(keysOf(mapping), func(n *yaml.Node) bool { return n.Value == key }); i >= 0 {
		mapping.Content[2*i+1] = value
		return
	}
	mapping.Content = append(mapping.Content, text(key), value)
}

func mappingOf(key string, value *yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{text(key), value}}
}

func mapping(pairs ...string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for i := 0; i+1 < len(pairs); i += 2 {
		put(n, pairs[i], text(pairs[i+1]))
	}
	return n
}

// text is a scalar that stays a text, whatever it looks like.
func text(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}

// write writes the secrets, readable by this account alone, and then the file, each
// whole or not at all.
func (s *setup) write(ctx context.Context, actor access.Actor, made composed) error {
	return pgx.BeginFunc(ctx, s.app.pool, func(tx pgx.Tx) error {
		detail := map[string]any{"file": made.path, "cluster": s.broker.Name, "sources": s.draft.Sources.Names, "groups": len(s.draft.Evidence)}
		if err := audit.Write(ctx, tx, actor, audit.Entry{Action: "config.saved", Target: "config", Detail: detail}); err != nil {
			return err
		}
		for _, secret := range made.secrets {
			if err := os.MkdirAll(filepath.Dir(secret.path), 0o700); err != nil {
				return err
			}
			if err := replaceFile(secret.path, []byte(secret.value+"\n"), 0o600); err != nil {
				return err
			}
		}
		mode := os.FileMode(0o644)
		if info, err := os.Stat(made.path); err == nil {
			mode = info.Mode().Perm()
		}
		return replaceFile(made.path, made.text, mode)
	})
}

// replaceFile puts a file in another one's place.
func replaceFile(path string, content []byte, mode os.FileMode) error {
	temp, err := os.CreateTemp(filepath.Dir(path), ".setup-*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) //nolint:errcheck // gone already where all went well
	_, err = temp.Write(content)
	if err == nil {
		err = temp.Chmod(mode)
	}
	if err == nil {
		err = temp.Sync()
	}
	if closed := temp.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}
