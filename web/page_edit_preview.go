package web

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"oncemore/dlq"
	"oncemore/dlq/bodydiff"
	"oncemore/views"
	"oncemore/views/locale"
)

func indentedText(s string) string {
	v := jsontext.Value(s)
	if v.Format(jsontext.AllowDuplicateNames(true), jsontext.PreserveRawStrings(true), jsontext.Multiline(true), jsontext.WithIndent("  ")) != nil {
		return s
	}
	return string(v)
}

func previewOf(here locale.Locale, f dlq.Form, p dlq.Proposal, digest string) *views.EditPreview {
	before, after := f.Body.Value, p.Edit.Value
	if p.Edit.Document != nil {
		before, after = f.Document, p.Edit.Document
	}
	out := &views.EditPreview{
		Changed: p.Changed, Digest: digest, Second: p.Sensitive, Value: diffView(here, before, after),
		Key: diffView(here, f.Body.Key, p.Edit.Key), Headers: diffView(here, headerLines(f.Body.Headers), headerLines(p.Edit.Headers)),
	}
	if p.Verdict != nil {
		own := p.Verdict.Own()
		out.Verdict, out.Reason = own.Verdict.String(), reasonText(here, own.Reason)
	}
	return out
}

// headerLines is one header a line, for comparing.
func headerLines(headers []dlq.Header) []byte {
	var out strings.Builder
	for _, h := range headers {
		value := "null"
		if h.Value != nil {
			value = strconv.Quote(h.Text())
		}
		out.WriteString(strings.ToValidUTF8(h.Name, "\uFFFD") + ": " + value + "\n")
	}
	return []byte(out.String())
}

// diffLines is how many lines of a diff a page shows.
const diffLines = 2000

func diffView(here locale.Locale, before, after []byte) views.DiffView {
	if (before == nil) != (after == nil) {
		v := diffLinesOf(before, after)
		v.Note = here.Text("diff.now_null")
		if before == nil {
			v.Note = here.Text("diff.was_null")
		}
		return v
	}
	d := bodydiff.Of(before, after)
	if d.Equal {
		return views.DiffView{}
	}
	v := diffLinesOf(before, after)
	if d.SameMeaning {
		v.Note = here.Text("diff.space_only")
	}
	return v
}

func diffLinesOf(before, after []byte) views.DiffView {
	var v views.DiffView
	n := 0
	for _, h := range bodydiff.Of(before, after).Hunks {
		var lines []views.DiffLine
		for _, l := range h.Lines {
			if n++; n > diffLines {
				break
			}
			line := views.DiffLine{Text: strings.ToValidUTF8(l.Text, "\uFFFD"), Old: positive(l.Old), New: positive(l.New)}
			switch l.Op {
			case '+':
				line.Op = "ins"
			case '-':
				line.Op = "del"
			}
			lines = append(lines, line)
		}
		v.Hunks = append(v.Hunks, lines)
	}
	return v
}
