package dlq

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var inBraces = regexp.MustCompile(`\{(\w+)\}`)

// TestReasonsFillTheirSentences reads the package's own source: every call with
// a literal key names a sentence and all its values, and every sentence is used.
func TestReasonsFillTheirSentences(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	calls := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if name != "judge_reason.go" {
			source.Write(text)
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if key, args, ok := reasonCall(n); ok {
				calls++
				checkSentence(t, key, args)
			}
			return true
		})
	}
	if calls < 20 {
		t.Errorf("only %d calls found", calls)
	}
	for key := range ReasonTexts {
		if !strings.Contains(source.String(), strconv.Quote(key)) {
			t.Errorf("%s is never used", key)
		}
	}
}

// reasonCall reads reason("key", "name", value, …).
func reasonCall(n ast.Node) (key string, names []string, ok bool) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return "", nil, false
	}
	if f, isName := call.Fun.(*ast.Ident); !isName || f.Name != "reason" || len(call.Args) == 0 {
		return "", nil, false
	}
	if key, ok = literal(call.Args[0]); !ok {
		return "", nil, false // the key is a variable
	}
	for i := 1; i < len(call.Args); i += 2 {
		name, _ := literal(call.Args[i])
		names = append(names, name)
	}
	return key, names, true
}

func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

func checkSentence(t *testing.T, key string, names []string) {
	t.Helper()
	sentence, ok := ReasonTexts[key]
	if !ok {
		t.Errorf("%s has no sentence", key)
	}
	for _, m := range inBraces.FindAllStringSubmatch(sentence, -1) {
		if !slices.Contains(names, m[1]) {
			t.Errorf("%s: {%s} is not given, only %v", key, m[1], names)
		}
	}
}

func TestTimelineSentencesHaveTheirKinds(t *testing.T) {
	t.Parallel()
	for key := range TimelineTexts {
		if !strings.HasPrefix(key, "timeline.") {
			t.Errorf("key %s", key)
		}
	}
	var tl timeline
	tl.replayed(LetterReplay{ReplayID: 1, CreatedBy: "chen", ItemState: "left_out"})
	tl.replayed(LetterReplay{ReplayID: 2, CreatedBy: "chen", ItemState: "unconfirmed"})
	tl.revised(Revision{No: 1, CreatedBy: "chen"})
	tl.revised(Revision{No: 2, Base: 1, CreatedBy: "chen"})
	tl.closing(LetterDetail{Letter: Letter{State: Discarded}})
	tl.failed(Letter{Attempts: ptr(int32(3)), Source: "q"})
	for _, e := range tl.events {
		if e.Text == "" || inBraces.MatchString(e.Text) {
			t.Errorf("%s reads %q", e.Key, e.Text)
		}
	}
	if len(tl.events) != 9 {
		t.Errorf("%d events: %+v", len(tl.events), tl.events)
	}
}

func TestAReasonComesBackWithWholeNumbers(t *testing.T) {
	t.Parallel()
	was := reason("reason.out_of_order.later", "offset", int64(8841207), "topic", "order.paid", "partition", int32(3))
	kept := storeReason(was)
	got := loadReason(&kept.Text, &kept.Key, kept.Args)
	if got.Text != was.Text || got.Key != was.Key || got.Args["offset"] != int64(8841207) || got.Args["topic"] != "order.paid" || got.Args["partition"] != int64(3) {
		t.Errorf("%+v came back as %+v", was, got)
	}
	if fill(ReasonTexts[got.Key], got.Args) != was.Text {
		t.Errorf("filled again: %s", fill(ReasonTexts[got.Key], got.Args))
	}
}
