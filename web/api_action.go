package web

import (
	"encoding/hex"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/compensate"
)

// actionJSON is a definition of an action, as its file says it.
type actionJSON struct {
	Name       string       `json:"name"`
	Version    int          `json:"version"`
	Hash       string       `json:"hash"`
	Kind       string       `json:"kind"`
	AppliesTo  []string     `json:"applies_to"` // types of breaks; empty: any
	Group      *string      `json:"consumer_group"`
	Steps      []string     `json:"steps"`
	Checkers   int          `json:"checkers"`
	Above      []tierJSON   `json:"above"`
	Limits     limitsJSON   `json:"limits"`
	Automatic  *automatJSON `json:"automatic"` // null: only people propose it
	TrustedBy  *string      `json:"trusted_by"`
	Trusted    bool         `json:"trusted"` // this version may be proposed and approved by the schedule
	Verify     bool         `json:"verify"`
	Definition string       `json:"definition"` // YAML
}

type tierJSON struct {
	Amount   string `json:"amount"`
	Checkers int    `json:"checkers"`
}

type limitsJSON struct {
	PerBatch     *int     `json:"per_batch"`
	AmountPerDay *string  `json:"amount_per_day"`
	Rate         *float64 `json:"starts_per_second"`
}

type automatJSON struct {
	Schedule     string  `json:"schedule"`
	Below        string  `json:"below"`
	PerRun       int     `json:"per_run"`
	AmountPerDay string  `json:"amount_per_day"`
	OlderThan    float64 `json:"older_than_seconds"`
}

func actionOf(d compensate.Definition) (actionJSON, error) {
	a, err := d.Parse()
	if err != nil {
		return actionJSON{}, err
	}
	out := actionJSON{
		Name: d.Action, Version: d.Version, Hash: hex.EncodeToString(d.Hash), Kind: string(a.Kind), AppliesTo: []string{}, Group: known(a.Group), Steps: []string{},
		Checkers: a.Approval.Checkers, Above: []tierJSON{}, TrustedBy: d.TrustedBy, Trusted: d.Trusted(), Verify: a.Verify, Definition: d.Text,
	}
	for _, t := range a.AppliesTo {
		out.AppliesTo = append(out.AppliesTo, string(t))
	}
	for _, s := range a.Steps {
		out.Steps = append(out.Steps, s.ID)
	}
	for _, t := range a.Approval.Above {
		out.Above = append(out.Above, tierJSON{t.Amount.String(), t.Checkers})
	}
	if a.Limits.PerBatch > 0 {
		out.Limits.PerBatch = &a.Limits.PerBatch
	}
	if a.Limits.AmountPerDay != nil {
		out.Limits.AmountPerDay = ptr(a.Limits.AmountPerDay.String())
	}
	if a.Limits.Rate > 0 {
		out.Limits.Rate = &a.Limits.Rate
	}
	if m := a.Automatic; m != nil {
		out.Automatic = &automatJSON{m.Schedule, m.Below.String(), m.PerRun, m.AmountPerDay.String(), m.OlderThan.Seconds()}
	}
	return out, nil
}

func (s *Server) apiActions(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	all, err := s.Compensations.Actions.List(c.Request().Context())
	if err != nil {
		return err
	}
	out := list[actionJSON]{Items: []actionJSON{}}
	for _, d := range all {
		j, err := actionOf(d)
		if err != nil {
			return err
		}
		out.Items = append(out.Items, j)
	}
	return answer(c, http.StatusOK, out)
}

type actionDetailJSON struct {
	actionJSON
	Versions []actionVersionJSON `json:"versions"`
}

type actionVersionJSON struct {
	Version    int        `json:"version"`
	Hash       string     `json:"hash"`
	LoadedAt   *time.Time `json:"loaded_at"`
	LoadedBy   string     `json:"loaded_by"`
	Definition string     `json:"definition"`
}

func (s *Server) apiAction(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	return s.answerAction(c)
}

func (s *Server) answerAction(c echo.Context) error {
	ctx, name := c.Request().Context(), c.Param("action")
	d, err := s.Compensations.Actions.Current(ctx, name)
	if err != nil {
		return err
	}
	versions, err := s.Compensations.Actions.Versions(ctx, name)
	if err != nil {
		return err
	}
	out := actionDetailJSON{Versions: []actionVersionJSON{}}
	if out.actionJSON, err = actionOf(d); err != nil {
		return err
	}
	for _, v := range versions {
		out.Versions = append(out.Versions, actionVersionJSON{v.Version, hex.EncodeToString(v.Hash), instant(&v.LoadedAt), v.LoadedBy, v.Text})
	}
	return answer(c, http.StatusOK, out)
}

// apiActionTrust lets the schedule propose and approve the present version by
// itself, or takes that back.
func (s *Server) apiActionTrust(trust bool) echo.HandlerFunc {
	return func(c echo.Context) error {
		by, err := commander(c)
		if err != nil {
			return err
		}
		if err := s.Compensations.Actions.Trust(c.Request().Context(), by, c.Param("action"), trust); err != nil {
			return err
		}
		return s.answerAction(c)
	}
}
