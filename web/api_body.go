package web

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/dlq/payload"
)

// viewBytes is how much of a view the API gives; the body itself is whole.
const viewBytes = 1 << 20

// bestView asks for the view that says most.
const bestView = "best"

// viewJSON is a value as a person would see it.
type viewJSON struct {
	Name     string     `json:"name"`
	Views    []string   `json:"views"` // that this body has
	Text     string     `json:"text"`  // of the view; hex digits for hex
	Cut      bool       `json:"cut"`   // there is more
	Steps    []stepJSON `json:"steps"` // how the bytes were opened, outermost first
	Problems []string   `json:"problems"`
}

type stepJSON struct {
	Kind     string  `json:"kind"`
	Size     int     `json:"size"` // bytes after it
	SchemaID *int    `json:"schema_id"`
	GUID     *string `json:"schema_guid"`
	Name     *string `json:"name"`
}

// askedView is the query's view; "" the body alone.
func askedView(c echo.Context) (string, error) {
	q := parseQuery(c)
	asked := q.take("view")
	if asked != "" && asked != bestView && !payloadViews[asked] {
		q.fail("view", "is one of "+strings.Join(append([]string{bestView}, payload.Views...), ", "))
	}
	return asked, q.done()
}

// bodyViewJSON opens the body. The route is for those who may read payloads.
func (s *Server) bodyViewJSON(c echo.Context, id uuid.UUID, body dlq.Body, asked string) (*viewJSON, error) {
	if asked == "" {
		return nil, nil
	}
	letter, err := s.Letters.Get(c.Request().Context(), id)
	if err != nil {
		return nil, fmt.Errorf("get letter %s: %w", id, err)
	}
	o := s.openBody(c.Request().Context(), letter.Cluster, body)
	has := o.Views()
	if asked != bestView && !slices.Contains(has, asked) {
		return nil, &fieldError{Field: "view", Text: "this body has only " + strings.Join(has, ", ")}
	}
	shown := viewFor(o, asked, false, "")
	v := &viewJSON{Name: shown.name, Views: has, Problems: problemTexts(localeOf(c), o, false), Steps: []stepJSON{}}
	if v.Problems == nil {
		v.Problems = []string{}
	}
	v.Text, v.Cut = viewText(shown)
	v.Cut = v.Cut || o.Cut && shown.name != payload.Hex
	for _, step := range o.Steps {
		j := stepJSON{Kind: step.Kind, Size: step.Size, Name: known(step.Name)}
		if id, err := strconv.Atoi(step.Schema); err == nil {
			j.SchemaID = &id
		} else {
			j.GUID = known(step.Schema)
		}
		v.Steps = append(v.Steps, j)
	}
	return v, nil
}

func viewText(v bodyView) (text string, cut bool) {
	most := viewBytes
	if v.name == payload.Hex {
		most /= 2
	}
	content := v.content
	if cut = len(content) > most; cut {
		content = content[:most]
		for len(content) > 0 && v.name != payload.Hex && !utf8.RuneStart(v.content[len(content)]) {
			content = content[:len(content)-1]
		}
	}
	if v.name == payload.Hex {
		return hex.EncodeToString(content), cut
	}
	return strings.ToValidUTF8(string(content), "\uFFFD"), cut
}
