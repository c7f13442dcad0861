package effect

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, sql, want string
		params          []string
	}{
		{"plain", "select 1", "select 1", nil},
		{"one", "insert into t values (:a)", "insert into t values ($1)", []string{"a"}},
		{"repeated", "select :a, :b, :a", "select $1, $2, $1", []string{"a", "b"}},
		{"dotted", "select :order.id, :items.0.sku", "select $1, $2", []string{"order.id", "items.0.sku"}},
		{"dot of a sentence", "select :a.", "select $1.", []string{"a"}},
		{"payload field", "select :$.topic, :topic", "select $1, $2", []string{"$.topic", "topic"}},
		{"whole payload", "select :$::jsonb", "select $1::jsonb", []string{"$"}},
		{"cast", "select :a::int, x::text", "select $1::int, x::text", []string{"a"}},
		{"cast of a cast", "select :a::int::text", "select $1::int::text", []string{"a"}},
		{"literal", "select ':a', 'it''s :b', :c", "select ':a', 'it''s :b', $1", []string{"c"}},
		{"backslash in a plain literal", `select '\', :a`, `select '\', $1`, []string{"a"}},
		{"escape literal", `select E'\':a', e'\\', :b`, `select E'\':a', e'\\', $1`, []string{"b"}},
		{"a name that ends in e", `select date '\', :a`, `select date '\', $1`, []string{"a"}},
		{"continued escape literal", "select E'a'\n  -- it's\n '\\':a', :b", "select E'a'\n  -- it's\n '\\':a', $1", []string{"b"}},
		{"unicode literal", `select U&'\0061:a', :b`, `select U&'\0061:a', $1`, []string{"b"}},
		{"quoted name", `select ":a""x:b", :c`, `select ":a""x:b", $1`, []string{"c"}},
		{"dollar quotes", "select $$:a$$, $x$ $$ :b $x$, :c", "select $$:a$$, $x$ $$ :b $x$, $1", []string{"c"}},
		{"dollar inside a name", "select a$b$c, :d, e$b$f", "select a$b$c, $1, e$b$f", []string{"d"}},
		{"line comment", "select 1 -- :a\n, :b", "select 1 -- :a\n, $1", []string{"b"}},
		{"nested comment", "select /* :a /* :b */ :c */ :d", "select /* :a /* :b */ :c */ $1", []string{"d"}},
		{"comment first", "-- why\n/* x */ select :a", "-- why\n/* x */ select $1", []string{"a"}},
		{"slice of numbers", "select x[1:2]", "select x[1:2]", nil},
		{"slice of columns", "select x[lo:hi], x[f(1):hi], x[y[1]:z]", "select x[lo:hi], x[f(1):hi], x[y[1]:z]", nil},
		{"open slice", "select x[:2], x[2:], x[:]", "select x[:2], x[2:], x[:]", nil},
		{"subscript", "select x[:a]", "select x[$1]", []string{"a"}},
		{"slice of parameters", "select x[(:a):(:b)], x[1: :c]", "select x[($1):($2)], x[1: $3]", []string{"a", "b", "c"}},
		{"array constructor", "select array[:a, 1, :b], ARRAY[[:c],[:d]]", "select array[$1, 1, $2], ARRAY[[$3],[$4]]", []string{"a", "b", "c", "d"}},
		{"named argument", "select f(a := :a, b=>:b)", "select f(a := $1, b=>$2)", []string{"a", "b"}},
		{"no space", "select 1+:a*:b||:c", "select 1+$1*$2||$3", []string{"a", "b", "c"}},
		{"other alphabets", "select :订单号, :größe", "select $1, $2", []string{"订单号", "größe"}},
		{"semicolon", "select :a ; -- done\n", "select $1  -- done\n", []string{"a"}},
		{"with", "with x as (select :a) insert into t select * from x", "with x as (select $1) insert into t select * from x", []string{"a"}},
		{"colon alone", "select 1 : 2", "select 1 : 2", nil},
		{"json operators", `select j->>'a:b' ? ':c' and j @> :d`, `select j->>'a:b' ? ':c' and j @> $1`, []string{"d"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := parse(c.sql)
			if err != nil {
				t.Fatal(err)
			}
			if got.text != c.want || !slices.Equal(got.params, c.params) {
				t.Errorf("parse(%q)\n got %q %q\nwant %q %q", c.sql, got.text, got.params, c.want, c.params)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	cases := []struct{ name, sql, reason string }{
		{"nothing", " \n-- only a comment", "is empty"},
		{"commit", "commit", "has to begin with"},
		{"rollback behind a comment", "/* x */ ROLLBACK", "has to begin with"},
		{"ddl", "drop table t", "has to begin with"},
		{"two statements", "select 1; commit", "one statement only"},
		{"two semicolons", "select 1;;", "one statement only"},
		{"numbered parameter", "select $1", "write :name"},
		{"numbered parameter behind a colon", "select x[1:$2]", "write :name"},
		{"open literal", "select 'a", "' is never closed"},
		{"open name", `select "a`, `" is never closed`},
		{"open dollar quote", "select $a$ :x $b$", "$a$ is never closed"},
		{"open comment", "select 1 /* /* */", "/* is never closed"},
		{"stray bracket", "select 1)", "without its opening bracket"},
		{"crossed brackets", "select (a[1)]", "without its opening bracket"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := parse(c.sql)
			var syntax *SyntaxError
			if !errors.As(err, &syntax) || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("parse(%q) = %v, want a SyntaxError that says %q", c.sql, err, c.reason)
			}
		})
	}
}

// fragments are pieces of SQL that hold no parameter, whatever they look like.
var fragments = []string{
	"x", "1", "1.5e3", "+", ",", "'a'", "':p'", "'it''s'", `E'\':p'`, `E'\\'`, `"n:p"`, `"a""b:p"`, "$$ :p $$", "$t$ ':p $$ $t$",
	"a$b$c", "/* :p */", "/* ' /* :p */ */", "-- ':p\n", "::int", "x[1:2]", "x[lo:hi]", "x[:2]", "array[1]", "(1)", ":=", "e", "E'a'\n'\\':p'",
}

// Whatever surrounds them, exactly the parameters are found, and everything
// else stays byte for byte.
func TestParseFindsExactlyTheParameters(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sql, want := strings.Builder{}, strings.Builder{}
		sql.WriteString("select ")
		want.WriteString("select ")
		var params []string
		for range rapid.IntRange(0, 12).Draw(t, "pieces") {
			if rapid.Bool().Draw(t, "parameter") {
				name := rapid.StringMatching(`[a-z_][a-zA-Z0-9_]{0,6}(\.[a-z0-9]{1,3}){0,2}`).Draw(t, "name")
				if !slices.Contains(params, name) {
					params = append(params, name)
				}
				sql.WriteString(" :" + name + " ")
				want.WriteString(" $" + strconv.Itoa(slices.Index(params, name)+1) + " ")
				continue
			}
			piece := rapid.SampledFrom(fragments).Draw(t, "piece")
			sql.WriteString(" " + piece + "\t")
			want.WriteString(" " + piece + "\t")
		}
		got, err := parse(sql.String())
		if err != nil {
			t.Fatalf("parse(%q): %v", sql.String(), err)
		}
		if got.text != want.String() || !slices.Equal(got.params, params) {
			t.Fatalf("parse(%q)\n got %q %q\nwant %q %q", sql.String(), got.text, got.params, want.String(), params)
		}
	})
}

// Any input either fails with a place inside it, or gives a text in which the
// parameters are numbered without holes.
func FuzzParse(f *testing.F) {
	for _, piece := range fragments {
		f.Add("select " + piece + " :a")
	}
	f.Fuzz(func(t *testing.T, sql string) {
		got, err := parse(sql)
		var syntax *SyntaxError
		switch {
		case errors.As(err, &syntax):
			if syntax.Offset < 0 || syntax.Offset > len(sql) {
				t.Errorf("offset %d outside of %d bytes", syntax.Offset, len(sql))
			}
		case err != nil:
			t.Errorf("parse(%q) = %v, want a SyntaxError", sql, err)
		default:
			checkNumbers(t, got)
		}
	})
}

func checkNumbers(t *testing.T, s statement) {
	t.Helper()
	for i, name := range s.params {
		if !strings.Contains(s.text, "$"+strconv.Itoa(i+1)) {
			t.Errorf("parameter %q has no $%d in %q", name, i+1, s.text)
		}
		if nameLen(name) != len(name) {
			t.Errorf("%q is no name", name)
		}
	}
}
