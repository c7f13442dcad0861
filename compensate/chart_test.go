package compensate

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// course of a saga against a model: whatever comes of its steps and whenever
// somebody cancels, the order holds, nothing that could be undone stays after a
// turn back, and it ends.
func TestCoursesOfSagas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		m := &sagaModel{T: r, action: drawSaga(r), now: noon, stands: map[int]bool{}}
		for i, s := range m.action.Steps {
			m.rows = append(m.rows, StepRow{No: i, Op: Forward, Step: s.ID})
		}
		for range 400 {
			if m.move() {
				return
			}
		}
		r.Fatalf("it does not end: %+v", m.rows)
	})
}

func drawSaga(r *rapid.T) *Action {
	a := &Action{Kind: Saga, Mode: rapid.SampledFrom([]Mode{Compensating, TryConfirmCancel}).Draw(r, "mode")}
	for i := range rapid.IntRange(1, 5).Draw(r, "steps") {
		s := Step{ID: fmt.Sprint(i), Kind: HTTP, Timeout: time.Second}
		if rapid.Bool().Draw(r, "undone") {
			s.Compensate = "undo"
		}
		if i > 0 && rapid.Bool().Draw(r, "after") {
			s.After = []string{}
			for j := range i {
				if rapid.Bool().Draw(r, "edge") {
					s.After = append(s.After, fmt.Sprint(j))
				}
			}
		}
		a.Steps = append(a.Steps, s)
	}
	return a
}

type sagaModel struct {
	*rapid.T
	action    *Action
	rows      []StepRow
	now       time.Time
	cancelled bool
	stands    map[int]bool // steps whose effect is there, by number
}

// move follows the course once; true: it has ended.
func (m *sagaModel) move() bool {
	if !m.cancelled && rapid.IntRange(0, 9).Draw(m.T, "cancel") == 0 {
		m.cancelled = true
	}
	next := chart(m.action, m.rows, m.cancelled, m.now)
	switch {
	case next.end != 0:
		return m.ends(next)
	case next.phase != 0:
		for _, no := range next.plan {
			m.rows = append(m.rows, StepRow{No: no, Op: next.phase, Step: m.action.Steps[no].ID})
		}
	case len(next.run) > 0:
		for _, row := range next.run {
			m.may(row, next.run)
			m.run(row)
		}
	case next.wait != nil:
		if !next.wait.After(m.now) {
			m.Fatal("it waits for what is over")
		}
		m.now = *next.wait
	default:
		m.Fatalf("it neither runs nor waits nor ends: %+v", m.rows)
	}
	return false
}

func (m *sagaModel) at(op Op, no int) *StepRow {
	i := slices.IndexFunc(m.rows, func(r StepRow) bool { return r.Op == op && r.No == no })
	if i < 0 {
		return nil
	}
	return &m.rows[i]
}

func (m *sagaModel) any(op Op) bool {
	return slices.ContainsFunc(m.rows, func(r StepRow) bool { return r.Op == op })
}

// may checks that a step is allowed now.
func (m *sagaModel) may(row StepRow, all []StepRow) {
	switch row.Op {
	case Forward:
		if m.any(Back) || m.any(Confirm) {
			m.Fatalf("step %d goes forward after a turn", row.No)
		}
		for _, before := range m.action.before(row.No) {
			i := slices.IndexFunc(m.action.Steps, func(s Step) bool { return s.ID == before })
			if row.State != StepRunning && m.rows[i].State != StepDone {
				m.Fatalf("step %d before %s", row.No, before)
			}
		}
		if m.cancelled && row.State != StepRunning {
			m.Fatalf("step %d after a cancel", row.No)
		}
	case Back:
		if len(all) != 1 {
			m.Fatal("undone side by side")
		}
		for _, r := range m.rows {
			if r.Op == Back && r.No > row.No && r.State != StepDone {
				m.Fatalf("step %d is undone before %d", row.No, r.No)
			}
		}
	case Confirm:
		if m.any(Back) {
			m.Fatal("confirmed after a turn back")
		}
	}
}

// run draws what comes of a step, as execute would record it.
func (m *sagaModel) run(row StepRow) {
	r := m.at(row.Op, row.No)
	if r.State == StepRunning { // of a process that died
		r.State = StepUnknown
		return
	}
	r.Tries++
	switch rapid.IntRange(0, 9).Draw(m.T, "outcome") {
	case 0:
		r.State = StepFailed
	case 1:
		r.State = StepUnknown
		if rapid.Bool().Draw(m.T, "applied") {
			m.effect(*r)
		}
	case 2:
		r.State = StepRunning
		started := m.now
		r.StartedAt = &started
		m.effect(*r)
	case 3:
		due := m.now.Add(time.Minute)
		r.DueAt = &due
	default:
		r.State = StepDone
		m.effect(*r)
	}
}

func (m *sagaModel) effect(r StepRow) {
	if r.Op != Confirm {
		m.stands[r.No] = r.Op == Forward
	}
}

// ends checks what an end says against what stands.
func (m *sagaModel) ends(c course) bool {
	all := func(op Op) bool {
		return !slices.ContainsFunc(m.rows, func(r StepRow) bool { return r.Op == op && r.State != StepDone })
	}
	stopped := m.any(Back) && !all(Back) || m.any(Confirm) && !all(Confirm)
	switch {
	case c.end == Verifying:
		if !all(Forward) || m.any(Back) || m.action.Mode == TryConfirmCancel && (!m.any(Confirm) || !all(Confirm)) {
			m.Fatalf("it is through: %+v", m.rows)
		}
	case stopped:
		if c.end != NeedsAttention {
			m.Fatalf("it has stopped, and is %s", c.end)
		}
		m.stoppedRight()
	default:
		for no, stands := range m.stands {
			if stands && (m.action.Mode == TryConfirmCancel || m.action.Steps[no].Compensate != "") && m.rows[no].State != StepFailed {
				m.Fatalf("it is %s, and step %d stands: %+v", c.end, no, m.rows)
			}
		}
	}
	return true
}

// stoppedRight: below a step that could not be undone nothing was tried.
func (m *sagaModel) stoppedRight() {
	for _, r := range m.rows {
		if r.Op != Back || r.State != StepFailed && r.State != StepUnknown {
			continue
		}
		for _, lower := range m.rows {
			if lower.Op == Back && lower.No < r.No && lower.Tries > 0 {
				m.Fatalf("step %d is undone though %d is not", lower.No, r.No)
			}
		}
	}
}
