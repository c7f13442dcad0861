package access_test

import (
	"errors"
	"testing"

	"oncemore/internal/access"
)

// The policy as the design words it, written out a second time.
func TestPolicy(t *testing.T) {
	t.Parallel()
	want := map[access.Act]string{ // viewer, operator, reviewer, approver, admin
		access.Read:          "yyyyy",
		access.ReadPayload:   "nyyyy",
		access.PlanReplay:    "nynny",
		access.StartReplay:   "nynny",
		access.ApproveReplay: "nnnyy",
		access.EditLetter:    "nynny",
		access.ControlTry:    "nynny",
		access.PauseConsumer: "nynny",
		access.RetryOutbox:   "nynny",
		access.SkipOutbox:    "nynny",
		access.ApproveOutbox: "nnnyy",
		access.ManageUsers:   "nnnny",
		access.ManageTokens:  "yyyyy",
	}
	for act, roles := range want {
		for i, role := range access.Roles {
			actor := access.Actor{User: "x", Role: role}
			if got := actor.May(act); got != (roles[i] == 'y') {
				t.Errorf("%s may %s: %v", role, act, got)
			}
			if err := actor.Check(act); (err == nil) != (roles[i] == 'y') || (err != nil && !errors.Is(err, access.ErrForbidden)) {
				t.Errorf("%s, %s: %v", role, act, err)
			}
		}
		for _, role := range []access.Role{"", "root", "Admin"} {
			if (access.Actor{Role: role}).May(act) {
				t.Errorf("a role %q may %s", role, act)
			}
		}
	}
}

// What is left of a role never allows more than either of the two.
func TestWithin(t *testing.T) {
	t.Parallel()
	for _, r := range access.Roles {
		for _, max := range access.Roles {
			got := r.Within(max)
			if !got.AtMost(r) || !got.AtMost(max) {
				t.Errorf("%s within %s is %s", r, max, got)
			}
		}
		if got := access.Role("root").Within(r); got != r && got != access.Viewer {
			t.Errorf("an unknown role within %s is %s", r, got)
		}
	}
	for _, c := range [][3]access.Role{
		{access.Admin, access.Operator, access.Operator},
		{access.Operator, access.Admin, access.Operator},
		{access.Operator, access.Approver, access.Viewer},
	} {
		if got := c[0].Within(c[1]); got != c[2] {
			t.Errorf("%s within %s is %s, want %s", c[0], c[1], got, c[2])
		}
	}
}
