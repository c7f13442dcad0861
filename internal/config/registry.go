package config

import (
	"net/url"
	"time"
)

// SchemaRegistry is where the schemas of a cluster's messages are kept. It speaks
// Confluent's API.
type SchemaRegistry struct {
	Pos      Pos
	URLs     []string // tried in turn
	User     Secret
	Password Secret
	Token    Secret // bearer; in place of user and password
	TLS      *TLS
	Timeout  time.Duration // for one schema with all that it refers to
}

const (
	defaultRegistryTimeout = 3 * time.Second
	mostRegistryTimeout    = 10 * time.Second
)

func readSchemaRegistry(n node) *SchemaRegistry {
	r := &SchemaRegistry{Pos: n.Pos(), Timeout: defaultRegistryTimeout}
	f := fields{
		"urls": func(n node) { readRegistryURLs(n, &r.URLs) },
		"tls":  func(n node) { r.TLS = readTLS(n) },
		"timeout": func(n node) {
			if n.Duration(&r.Timeout); r.Timeout <= 0 || r.Timeout > mostRegistryTimeout {
				n.Fail("has to be more than 0 and at most %s: a page waits for it", mostRegistryTimeout)
			}
		},
	}
	secret(f, "user", &r.User)
	secret(f, "password", &r.Password)
	secret(f, "token", &r.Token)
	n.Object(f, "urls")
	switch {
	case r.User.Set() != r.Password.Set():
		n.Fail("user and password go together")
	case r.Token.Set() && r.User.Set():
		n.Fail("give either user and password or token")
	}
	return r
}

func readRegistryURLs(n node, into *[]string) {
	n.Texts(into)
	if len(*into) == 0 {
		n.Fail("needs at least one address")
	}
	for _, base := range *into {
		u, err := url.Parse(base)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
			n.Fail("has to be addresses such as https://schemas.internal:8081, without user and query, not %q", base)
		}
	}
}
