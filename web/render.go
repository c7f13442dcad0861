package web

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"
)

// render writes a page or a fragment whole or not at all.
func render(c echo.Context, status int, component templ.Component) error {
	var b bytes.Buffer
	if err := component.Render(c.Request().Context(), &b); err != nil {
		return fmt.Errorf("render %s: %w", c.Path(), err)
	}
	c.Response().Header().Add(echo.HeaderVary, "HX-Request")
	return c.HTMLBlob(status, b.Bytes())
}

// sendJSON writes v whole or not at all. It escapes no HTML: what leaves is
// never HTML, and error texts stay readable.
func sendJSON(c echo.Context, status int, contentType string, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode %s: %w", c.Path(), err)
	}
	return c.Blob(status, contentType, b.Bytes())
}

func answer(c echo.Context, status int, v any) error {
	return sendJSON(c, status, "application/json", v)
}

func hexHash(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:16])
}

func ipNet(p netip.Prefix) *net.IPNet {
	p = p.Masked()
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func inverse[K, V comparable](m map[K]V) map[V]K {
	turned := make(map[V]K, len(m))
	for k, v := range m {
		turned[v] = k
	}
	return turned
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(m)), func(k string) bool { return k == "" })
}

// orEmpty keeps null out of arrays.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
