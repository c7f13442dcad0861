package web

import (
	"strings"
	"time"

	"oncemore/dlq"
	"oncemore/dlq/dialect"
	"oncemore/views"
	"oncemore/views/locale"
)

// layersView shows what each framework wrote on the message: one that died under
// two carries the marks of both.
func (s *Server) layersView(here locale.Locale, l dlq.LetterDetail, body dlq.Body, mayRead bool) views.Layers {
	msg := body.Message(l.Letter)
	v := views.Layers{Deaths: deathRows(msg)}
	for _, layer := range s.dialects().Layers(msg, dialect.Configured{}) {
		shown := views.Layer{Name: layer.Name}
		for _, f := range layer.Fields {
			shown.Fields = append(shown.Fields, views.Fact{Label: here.Text("layers.field." + f.Name), Value: fieldText(here, f.Value, mayRead)})
		}
		v.List = append(v.List, shown)
	}
	return v
}

// fieldText masks what a framework quoted: error messages hold what was in the
// message.
func fieldText(here locale.Locale, value any, mayRead bool) string {
	switch t := value.(type) {
	case time.Time:
		return here.Exact(t)
	case int64:
		return locale.Plain(t)
	case string:
		t = strings.ToValidUTF8(t, "\uFFFD")
		if !mayRead {
			t = maskText(t)
		}
		return cutText(here, t, shownHeader)
	}
	return ""
}

func deathRows(msg *dialect.Message) []views.DeathRow {
	var rows []views.DeathRow
	for _, d := range dialect.Deaths(msg) {
		rows = append(rows, views.DeathRow{Queue: d.Queue, Reason: d.Reason, Exchange: d.Exchange, Key: strings.Join(d.RoutingKeys, ", "), Count: int(d.Count), FirstAt: d.FirstAt})
	}
	return rows
}
