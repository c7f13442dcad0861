package config

import (
	"net/http"
	"net/url"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/net/http/httpguts"
)

// readURLs reads bases: an address, or an address with headers whose values are
// secrets.
func readURLs(n node, c *Config) {
	n.Named(func(name string, v node) {
		if v.Kind != yaml.MappingNode {
			c.URLs[name] = readBase(v)
			return
		}
		v.Object(fields{
			"base":    func(n node) { c.URLs[name] = readBase(n) },
			"headers": func(n node) { c.URLHeaders[name] = readSecretHeaders(n) },
		}, "base")
	})
}

func readBase(n node) string {
	var base string
	n.Text(&base)
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		n.Fail("has to be a base address such as http://points.internal:8080, not %q", base)
	}
	return strings.TrimRight(base, "/")
}

// ownHeaders are written by the console for every call.
var ownHeaders = []string{"Idempotency-Key", "Content-Type", "Host", "Oncemore-Saga", "Oncemore-Step", "Oncemore-Op"}

func readSecretHeaders(n node) map[string]Secret {
	headers := map[string]Secret{}
	n.Named(func(name string, v node) {
		var s Secret
		f := fields{}
		secret(f, "value", &s)
		v.Object(f)
		needSecret(v, "value", s)
		if !httpguts.ValidHeaderFieldName(name) {
			v.Fail("%q is no header's name", name)
		}
		for _, own := range ownHeaders {
			if http.CanonicalHeaderKey(name) == own {
				v.Fail("%s is written by the console itself", own)
			}
		}
		headers[name] = s
	})
	return headers
}
