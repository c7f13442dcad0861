package config

import (
	"net"
	"net/netip"
	"time"

	"go.yaml.in/yaml/v3"
)

// What holds where the file says nothing.
const (
	defaultListen     = "127.0.0.1:8080"
	defaultReplaySize = 1000
	defaultApproval   = 24 * time.Hour
	defaultReplayCap  = 5
	defaultLetters    = 180 * 24 * time.Hour
	defaultTimeout    = 5 * time.Second
	mostTimeout       = 10 * time.Second
)

func defaults(file string) *Config {
	return &Config{
		File: file, Listen: defaultListen, URLs: map[string]string{}, URLHeaders: map[string]map[string]Secret{},
		Approval:  Approval{ReplaySize: defaultReplaySize, ValidFor: defaultApproval},
		Replays:   Replays{Cap: defaultReplayCap},
		Retention: Retention{Letters: defaultLetters},
	}
}

func readApproval(n node, a *Approval) {
	n.Object(fields{
		"replay_size": func(n node) { n.Whole(&a.ReplaySize, 0) },
		"valid_for": func(n node) {
			if n.Duration(&a.ValidFor); a.ValidFor < time.Minute {
				n.Fail("is at least a minute")
			}
		},
	})
}

// secret reads the keys <name>_env and <name>_file into s.
func secret(f fields, name string, s *Secret) {
	read := func(into *string) func(node) {
		return func(n node) {
			if s.Set() {
				n.Fail("give %s_env or %s_file, not both", name, name)
			}
			s.Pos = n.Pos()
			n.Text(into)
		}
	}
	f[name+"_env"], f[name+"_file"] = read(&s.Env), read(&s.File)
	f[name] = func(n node) {
		s.Pos, s.Given = n.Pos(), "refused"
		n.Fail("secrets are not written here: name an environment variable as %s_env or a file as %s_file", name, name)
	}
}

// needSecret says which keys would have given a missing secret.
func needSecret(n node, name string, s Secret) {
	if !s.Set() {
		n.Fail("needs %s_env or %s_file", name, name)
	}
}

func readDatabase(n node, s *Secret) {
	f := fields{}
	secret(f, "url", s)
	n.Object(f)
	needSecret(n, "url", *s)
}

func readListen(n node, into *string) {
	n.Text(into)
	if _, _, err := net.SplitHostPort(*into); err != nil {
		n.Fail("has to be host:port such as 127.0.0.1:8080, not %q", *into)
	}
}

func readCluster(name string, n node) Cluster {
	c := Cluster{Pos: n.Pos(), Name: name}
	n.Object(fields{
		"kafka":  func(n node) { c.Kafka = readKafka(n) },
		"rabbit": func(n node) { c.Rabbit = readRabbit(n) },

		"schema_registry": func(n node) { c.SchemaRegistry = readSchemaRegistry(n) },
	})
	if (c.Kafka == nil) == (c.Rabbit == nil) {
		n.Fail("has to have either kafka or rabbit")
	}
	return c
}

func readKafka(n node) *Kafka {
	k := &Kafka{}
	n.Object(fields{
		"brokers": func(n node) { readBrokers(n, &k.Brokers) },
		"tls":     func(n node) { k.TLS = readTLS(n) },
		"sasl":    func(n node) { k.SASL = readSASL(n) },
	}, "brokers")
	return k
}

func readBrokers(n node, into *[]string) {
	n.Texts(into)
	for _, addr := range *into {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			n.Fail("%q has to be host:port", addr)
		}
	}
}

func readTLS(n node) *TLS {
	t := &TLS{}
	n.Object(fields{
		"ca_file":     func(n node) { n.Text(&t.CAFile) },
		"cert_file":   func(n node) { n.Text(&t.CertFile) },
		"key_file":    func(n node) { n.Text(&t.KeyFile) },
		"server_name": func(n node) { n.Text(&t.ServerName) },
	})
	if (t.CertFile == "") != (t.KeyFile == "") {
		n.Fail("cert_file and key_file go together")
	}
	return t
}

func readSASL(n node) *SASL {
	s := &SASL{}
	f := fields{"mechanism": func(n node) { n.OneOf(&s.Mechanism, "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512") }}
	secret(f, "user", &s.User)
	secret(f, "password", &s.Password)
	n.Object(f, "mechanism")
	needSecret(n, "user", s.User)
	needSecret(n, "password", s.Password)
	return s
}

func readRabbit(n node) *Rabbit {
	r := &Rabbit{}
	f := fields{"keep_expiration": func(n node) { n.Yes(&r.KeepExpiration) }}
	secret(f, "url", &r.URL)
	secret(f, "management_url", &r.ManagementURL)
	n.Object(f)
	needSecret(n, "url", r.URL)
	return r
}

func readConnection(name string, n node) Connection {
	c := Connection{Pos: n.Pos(), Name: name}
	f := fields{"kind": func(n node) { n.OneOf(&c.Kind, "postgres", "mysql") }}
	secret(f, "url", &c.URL)
	secret(f, "writer_url", &c.Writer)
	secret(f, "compensation_url", &c.Repairs)
	f["retention"] = func(n node) { c.Records = readRecords(n) }
	n.Object(f, "kind")
	needSecret(n, "url", c.URL)
	if !c.Writer.Set() {
		c.Writer = c.URL
	}
	return c
}

func readSource(n node) Source {
	s := Source{Pos: n.Pos()}
	n.Object(fields{
		"cluster":  func(n node) { n.Text(&s.Cluster) },
		"pattern":  func(n node) { n.Text(&s.Pattern) },
		"event_id": func(n node) { readEventID(n, &s.EventID) },
		"group":    func(n node) { n.Text(&s.Group) },
		"mode":     func(n node) { s.Copy = readMode(n) },

		"keep_expiration": func(n node) { s.KeepExpiration = new(bool); n.Yes(s.KeepExpiration) },

		"origin":     func(n node) { n.Text(&s.Origin) },
		"transports": func(n node) { s.Transports = readTransports(n) },
	}, "cluster", "pattern")
	return s
}

func readTransports(n node) map[string]string {
	queues := map[string]string{}
	n.Named(func(name string, v node) {
		var queue string
		v.Text(&queue)
		queues[name] = queue
	})
	return queues
}

// readMode reports whether a source is copied rather than drained.
func readMode(n node) bool {
	mode := "drain"
	n.OneOf(&mode, "drain", "copy")
	return mode == "copy"
}

func readEventID(n node, e *EventID) {
	n.Object(fields{
		"header":     func(n node) { n.Text(&e.Header) },
		"message_id": func(n node) { n.Yes(&e.MessageID) },
		"json":       func(n node) { n.Text(&e.JSON) },
	})
	if e.Header == "" && !e.MessageID && e.JSON == "" {
		n.Fail("needs header, json or, for RabbitMQ, message_id")
	}
}

func readGroup(name string, n node) Group {
	g := Group{Pos: n.Pos(), Name: name}
	n.Object(fields{
		"cluster":            func(n node) { n.Text(&g.Cluster) },
		"evidence":           func(n node) { g.Evidence = readEvidence(n) },
		"effect":             func(n node) { n.OneOf(&g.Effect, "local", "external") },
		"idempotency_window": func(n node) { n.Duration(&g.Window) },
		"order":              func(n node) { n.OneOf(&g.Order, "none", "key") },
		"topics":             func(n node) { n.Texts(&g.Topics) },
		"queues":             func(n node) { n.Texts(&g.Queues) },
		"group_target":       func(n node) { n.Text(&g.Target) },
	})
	return g
}

func readEvidence(n node) *Evidence {
	e := &Evidence{Pos: n.Pos(), EventID: "event_id", ConsumerGroup: "consumer_group", ConsumedAt: "consumed_at"}
	n.Object(fields{
		"connection":     func(n node) { n.Text(&e.Connection) },
		"table":          func(n node) { n.Text(&e.Table) },
		"event_id":       func(n node) { n.Text(&e.EventID) },
		"consumer_group": func(n node) { readColumn(n, &e.ConsumerGroup) },
		"group_value":    func(n node) { n.Text(&e.GroupValue) },
		"consumed_at":    func(n node) { readColumn(n, &e.ConsumedAt) },
		"where":          func(n node) { n.Text(&e.Where) },
		"complete_since": func(n node) { n.Date(&e.CompleteSince) },
		"retention":      func(n node) { n.Duration(&e.Retention) },
	}, "connection", "table", "complete_since")
	if e.GroupValue != "" && e.ConsumerGroup == "" {
		n.Fail("group_value is what consumer_group holds, and there is no such column")
	}
	if e.ConsumerGroup == e.EventID || e.ConsumedAt == e.EventID || e.ConsumedAt != "" && e.ConsumedAt == e.ConsumerGroup {
		n.Fail("event_id, consumer_group and consumed_at are columns of their own")
	}
	return e
}

// readColumn reads a column's name; none stands for no column.
func readColumn(n node, into *string) {
	n.Text(into)
	if *into == "none" {
		*into = ""
	}
}

func readConsumer(n node) Consumer {
	c := Consumer{Pos: n.Pos(), Strategy: "consume_record", Retry: defaultRetry(), Concurrency: 1}
	n.Object(fields{
		"group":   func(n node) { n.Text(&c.Group) },
		"cluster": func(n node) { n.Text(&c.Cluster) },
		"topics":  func(n node) { n.Texts(&c.Topics) },
		"queue":   func(n node) { n.Text(&c.Queue) },
		"redelivery_horizon": func(n node) {
			if n.Duration(&c.Horizon); c.Horizon <= 0 {
				n.Fail("has to be more than 0")
			}
		},
		"connection":  func(n node) { n.Text(&c.Connection) },
		"event_id":    func(n node) { readEventID(n, &c.EventID) },
		"strategy":    func(n node) { n.OneOf(&c.Strategy, "consume_record", "unique_key", "state", "lock", "version") },
		"lock_keys":   func(n node) { c.LockKeys = readKeys(n) },
		"effect":      func(n node) { readEffect(n, &c) },
		"filter":      func(n node) { n.Text(&c.Filter) },
		"retry":       func(n node) { readRetry(n, &c.Retry) },
		"dead_letter": func(n node) { n.Text(&c.DeadLetter) },
		"concurrency": func(n node) { n.Whole(&c.Concurrency, 1) },

		"session_timeout":   func(n node) { readMembership(n, &c.SessionTimeout) },
		"rebalance_timeout": func(n node) { readMembership(n, &c.RebalanceTimeout) },
	}, "group", "cluster", "connection", "event_id", "effect")
	if (len(c.Topics) == 0) == (c.Queue == "") {
		n.Fail("has to have either topics, of Kafka, or queue, of RabbitMQ")
	}
	if c.Queue != "" && (c.SessionTimeout != 0 || c.RebalanceTimeout != 0) {
		n.Fail("has a queue: session_timeout and rebalance_timeout are Kafka's")
	}
	return c
}

// readMembership reads one of a Kafka member's time-outs. Brokers take sessions from
// 6 s to 30 min, unless they are set otherwise.
func readMembership(n node, into *time.Duration) {
	if n.Duration(into); *into < 2*time.Second || *into > 30*time.Minute {
		n.Fail("has to be between 2s and 30m")
	}
}

func readEffect(n node, c *Consumer) {
	n.Object(fields{
		"sql":         func(n node) { n.Text(&c.SQL) },
		"verify":      func(n node) { n.Text(&c.Verify) },
		"unique_key":  func(n node) { n.Text(&c.UniqueKey) },
		"expect_rows": func(n node) { c.ExpectRows = readRows(n) },
		"http":        func(n node) { c.HTTP = readHTTP(n) },
	})
	if (c.SQL == "") == (c.HTTP == nil) {
		n.Fail("has to have either sql or http")
	}
}

// readKeys reads one value or a list of them for each name.
func readKeys(n node) map[string][]string {
	keys := map[string][]string{}
	n.Named(func(name string, v node) {
		var values []string
		if v.Kind == yaml.SequenceNode {
			v.Texts(&values)
		} else {
			values = make([]string, 1)
			v.Text(&values[0])
		}
		keys[name] = values
	})
	if n.Kind == yaml.MappingNode && len(keys) == 0 {
		n.Fail("names nothing to lock")
	}
	return keys
}

func readRows(n node) *int64 {
	var rows int
	n.Whole(&rows, 0)
	wide := int64(rows)
	return &wide
}

func readHTTP(n node) *HTTP {
	h := &HTTP{Method: "POST", Timeout: defaultTimeout, IdempotencyKey: "event"}
	n.Object(fields{
		"base":            func(n node) { n.Text(&h.Base) },
		"path":            func(n node) { n.Text(&h.Path) },
		"method":          func(n node) { n.OneOf(&h.Method, "POST", "PUT", "PATCH", "DELETE") },
		"headers":         func(n node) { readHeaders(n, h) },
		"body":            func(n node) { readBody(n, &h.Body) },
		"timeout":         func(n node) { readTimeout(n, &h.Timeout) },
		"accept_202":      func(n node) { n.Yes(&h.Accept202) },
		"idempotency_key": func(n node) { n.OneOf(&h.IdempotencyKey, "event", "effect") },
	}, "base")
	return h
}

func readHeaders(n node, h *HTTP) {
	h.Headers = map[string]string{}
	n.Named(func(name string, v node) {
		var value string
		v.Text(&value)
		h.Headers[name] = value
	})
}

// readBody takes any tree: what its texts mean is the effect's business.
func readBody(n node, into *any) {
	if err := n.Decode(into); err != nil {
		n.Fail("cannot be read: %v", err)
	}
}

func readTimeout(n node, into *time.Duration) {
	n.Duration(into)
	if *into <= 0 || *into > mostTimeout {
		n.Fail("has to be more than 0 and at most %s", mostTimeout)
	}
}

func defaultRetry() Retry {
	return Retry{Mode: "blocking", Attempts: 3, Initial: time.Second, Multiplier: 2, Max: 10 * time.Second}
}

func readRetry(n node, r *Retry) {
	n.Object(fields{
		"mode":       func(n node) { n.OneOf(&r.Mode, "blocking", "non_blocking") },
		"attempts":   func(n node) { n.Whole(&r.Attempts, 0) },
		"initial":    func(n node) { n.Duration(&r.Initial) },
		"multiplier": func(n node) { n.Number(&r.Multiplier, 1) },
		"max":        func(n node) { n.Duration(&r.Max) },
		"only":       func(n node) { n.Texts(&r.Only) },
		"exclude":    func(n node) { n.Texts(&r.Exclude) },
	})
	if r.Max < r.Initial {
		n.Fail("max (%s) is less than initial (%s)", r.Max, r.Initial)
	}
}

func readRetention(n node, r *Retention) {
	r.Records.Pos = n.Pos()
	f := recordFields(&r.Records)
	f["letters"] = func(n node) { n.Duration(&r.Letters) }
	n.Object(f)
}

func readProxies(n node, into *[]string) {
	n.Texts(into)
	for _, p := range *into {
		if _, err := netip.ParsePrefix(p); err != nil {
			n.Fail("%q has to be a range such as 10.0.0.0/8", p)
		}
	}
}
