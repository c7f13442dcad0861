package oncemore

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// arrows says what a part may import of ours, besides itself. The parts are
// those of DESIGN.md; a new one has to be drawn there and here.
var arrows = map[string][]string{
	"consumer":          {},
	"dlq":               {"consumer", "internal"},
	"reconcile":         {"consumer", "internal"},
	"compensate":        {"dlq", "reconcile", "consumer", "internal"},
	"web":               {"dlq", "reconcile", "compensate", "consumer", "internal", "views", "static", "migrations"},
	"views":             {"static"}, // addresses of assets carry their hash
	"static":            {},
	"migrations":        {},
	"migrations/pgtest": {"migrations", "internal"},
	"internal":          {"consumer"},
	"cmd":               {"web", "dlq", "reconcile", "compensate", "consumer", "internal", "views", "static", "migrations", "bench"},
	"bench":             {"dlq", "reconcile", "compensate", "consumer", "internal", "migrations", "interop"},
	"interop":           {},
	"examples":          {"consumer"},
}

// testArrows is what tests may import on top.
var testArrows = []string{"migrations", "migrations/pgtest", "internal", "consumer"}

// homes are libraries that stay where they are, so that the next major version
// or another choice is a change in one place.
var homes = map[string][]string{
	"github.com/labstack/echo/v4":                {"web"},
	"github.com/alexedwards/scs/v2":              {"web"},
	"github.com/a-h/templ":                       {"web", "views"},
	"github.com/alecthomas/kong":                 {"cmd"},
	"github.com/riverqueue/river":                {"dlq", "reconcile", "compensate", "cmd", "migrations", "internal"}, // internal: deliveries of alerts
	"github.com/pressly/goose/v3":                {"migrations"},
	"github.com/twmb/franz-go/pkg/kfake":         {"internal"},
	"github.com/fergusstrange/embedded-postgres": {"internal"},
	"github.com/redis/go-redis/v9":               {"consumer"},
}

type goPackage struct {
	ImportPath   string
	Dir          string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

func TestImportsFollowTheArrows(t *testing.T) {
	for _, p := range packages(t) {
		part := partOf(p.ImportPath)
		if part == "" {
			continue // this folder
		}
		allowed, drawn := arrows[part]
		if !drawn {
			t.Errorf("%s belongs to no part that is drawn", p.ImportPath)
		}
		for _, to := range p.Imports {
			if !may(part, to, allowed) {
				t.Errorf("%s imports %s: that arrow is not drawn", p.ImportPath, to)
			}
		}
		for _, to := range slices.Concat(p.TestImports, p.XTestImports) {
			if !may(part, to, slices.Concat(allowed, testArrows)) {
				t.Errorf("a test of %s imports %s: that arrow is not drawn", p.ImportPath, to)
			}
		}
	}
}

func TestLibrariesStayAtHome(t *testing.T) {
	for _, p := range packages(t) {
		for _, to := range p.Imports {
			for library, parts := range homes {
				if (to == library || strings.HasPrefix(to, library+"/")) && !slices.Contains(parts, partOf(p.ImportPath)) {
					t.Errorf("%s imports %s, which belongs in %s", p.ImportPath, to, strings.Join(parts, " and "))
				}
			}
		}
	}
}

func may(part, to string, allowed []string) bool {
	target := partOf(to)
	return !strings.HasPrefix(to, "oncemore") || target == part || slices.Contains(allowed, target)
}

// partOf is the first folder of an import path of ours; "" for the root.
func partOf(path string) string {
	rest, ours := strings.CutPrefix(path, "oncemore/")
	if !ours {
		return ""
	}
	if rest == "migrations/pgtest" {
		return rest
	}
	part, _, _ := strings.Cut(rest, "/")
	return part
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,Imports,TestImports,XTestImports", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 10 {
		t.Fatalf("go list found %d packages", len(all))
	}
	return all
}

// owners says which package alone names a table in SQL, by the table's name or
// the beginning of it.
var owners = []struct{ prefix, owner string }{
	{"dead_letter", "dlq"}, {"letter_", "dlq"}, {"fault", "dlq"}, {"replay", "dlq"}, {"event_claim", "dlq"},
	{"drain_", "dlq"}, {"saved_search", "dlq"}, {"resolved_hour", "dlq"},
	{"app_user", "web"}, {"session", "web"}, {"api_token", "web"}, {"login_", "web"},
	{"audit_log", "internal/audit"}, {"consumer_", "internal/fleet"}, {"check_", "internal/check"}, {"alert", "internal/alert"}, {"schedule", "internal/schedule"},
	{"reconcile_", "reconcile"}, {"compensation", "compensate"}, {"saga_", "compensate"},
	{"mq_consume_record", "consumer/pgstore"}, {"oncemore_barrier", "consumer/barrier"}, {"outbox_command", "internal/outboxes"}, {"outbox_", "consumer/outbox"},
}

// twins keep the same table in another kind of database.
var twins = map[string]string{"consumer/mysqlstore": "consumer/pgstore"}

// kits are packages for tests and measurements: they look at what others wrote.
var kits = []string{"bench", "consumer/brokertest", "consumer/storetest", "consumer/consumertest"}

func ownerOf(table string) string {
	for _, o := range owners {
		if strings.HasPrefix(table, o.prefix) {
			return o.owner
		}
	}
	return ""
}

var (
	createTable = regexp.MustCompile(`(?im)^\s*create (?:unlogged )?table (?:if not exists )?([a-z_]+)`)
	namesTable  = regexp.MustCompile(`(?i)\b(?:from|join|into|update|table|truncate|only)\s+([a-z_]+)\b`)
)

func TestOneTableHasOneOwner(t *testing.T) {
	tables := map[string]bool{"mq_consume_record": true, "oncemore_barrier": true}
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("no migrations: %v", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range createTable.FindAllSubmatch(b, -1) {
			tables[string(m[1])] = true
			if ownerOf(string(m[1])) == "" {
				t.Errorf("%s: table %s has no owner", file, m[1])
			}
		}
	}
	eachLiteral(t, func(file, text string) {
		if slices.Contains(kits, filepath.ToSlash(filepath.Dir(file))) {
			return
		}
		for _, m := range namesTable.FindAllStringSubmatch(text, -1) {
			table := strings.ToLower(m[1])
			dir := filepath.ToSlash(filepath.Dir(file))
			if owner := ownerOf(table); tables[table] && dir != owner && twins[dir] != owner {
				t.Errorf("%s names table %s in SQL, which belongs to %s", file, table, owner)
			}
		}
	})
}

// eachLiteral calls do with every string literal that looks like SQL.
func eachLiteral(t *testing.T, do func(file, text string)) {
	t.Helper()
	sql := regexp.MustCompile(`(?i)^\s*(?:--[^\n]*\n\s*)*(select|insert|update|delete|with|merge|lock|truncate|create|alter|copy)\b`)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != "." || d.Name() == "testdata" || d.Name() == "node_modules") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil && sql.MatchString(text) {
					do(path, text)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
