package web_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"oncemore/internal/access"
)

// document is the API's description as it is served.
type document struct {
	*openapi3.T
	router routers.Router
}

var load = sync.OnceValues(func() (*document, error) {
	loader := openapi3.NewLoader()
	doc, err := loader.LoadFromFile("openapi.yaml")
	if err != nil {
		return nil, err
	}
	if err := doc.Validate(loader.Context, openapi3.IsOpenAPI31OrLater()); err != nil {
		return nil, err
	}
	router, err := gorillamux.NewRouter(doc)
	return &document{doc, router}, err
})

func openDocument(t testing.TB) *document {
	t.Helper()
	doc, err := load()
	if err != nil {
		t.Fatalf("openapi.yaml: %v", err)
	}
	return doc
}

// check compares an answer with the schema of its route and status.
func (d *document) check(r *http.Request, got reply) error {
	route, params, err := d.router.FindRoute(r)
	if err != nil {
		return fmt.Errorf("%s %s is not in the document: %w", r.Method, r.URL.Path, err)
	}
	return openapi3filter.ValidateResponse(r.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route},
		Status:                 got.status, Header: got.header, Body: io.NopCloser(bytes.NewReader([]byte(got.body))),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	})
}

// checked is a call whose answer has to fit the document, whatever its status.
func (s *shop) checked(t testing.TB, token, method, path, body string) reply {
	t.Helper()
	got := s.call(t, token, method, path, body)
	r, err := http.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if err := openDocument(t).check(r, got); err != nil {
		t.Errorf("%s %s does not answer as documented: %v\n%d %s", method, path, err, got.status, got.body)
	}
	if got.status >= 400 {
		got.problem(t)
	}
	return got
}

var echoParam = regexp.MustCompile(`:(\w+)`)

func TestEveryRouteIsDocumented(t *testing.T) {
	t.Parallel()
	doc, s := openDocument(t), setupSite(t)
	var routes, documented []string
	for _, r := range s.server.Routes() {
		if path, ok := strings.CutPrefix(r.Path, "/api/v1"); ok {
			routes = append(routes, r.Method+" "+echoParam.ReplaceAllString(path, "{$1}"))
		}
	}
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			documented = append(documented, method+" "+path)
		}
	}
	slices.Sort(routes)
	slices.Sort(documented)
	if !slices.Equal(routes, documented) {
		t.Errorf("routes and openapi.yaml differ\nroutes:     %v\ndocumented: %v", routes, documented)
	}
}

func TestDocumentIsServed(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	r := s.call(t, s.token(t, access.Viewer), http.MethodGet, "/api/v1/openapi.json", "")
	served, err := openapi3.NewLoader().LoadFromData([]byte(r.body))
	if err != nil || r.header.Get("Content-Type") != "application/json" {
		t.Fatalf("%v, type %q", err, r.header.Get("Content-Type"))
	}
	if served.OpenAPI != "3.1.0" || len(served.Paths.Map()) != len(openDocument(t).Paths.Map()) {
		t.Errorf("OpenAPI %s with %d paths", served.OpenAPI, len(served.Paths.Map()))
	}
}

// A check that accepts anything would be worth nothing.
func TestTheCheckItselfRefuses(t *testing.T) {
	t.Parallel()
	doc := openDocument(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/letters", nil)
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if err := doc.check(r, reply{200, header, `{"items":[],"next":null}`}); err != nil {
		t.Errorf("an empty page: %v", err)
	}
	for name, body := range map[string]string{
		"missing next":     `{"items":[]}`,
		"unknown member":   `{"items":[],"next":null,"more":1}`,
		"next is a number": `{"items":[],"next":1}`,
		"empty letter":     `{"items":[{}],"next":null}`,
	} {
		if err := doc.check(r, reply{200, header, body}); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if err := doc.check(r, reply{404, header, `{}`}); err == nil {
		t.Error("a problem of the wrong type is accepted")
	}
}
