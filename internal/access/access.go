// Package access says who acts and what a role may do. The domain packages ask
// it in every command; the pages ask it only to choose what to show.
package access

import (
	"errors"
	"fmt"
	"slices"
)

// ErrForbidden is returned when no role of the actor allows the act.
var ErrForbidden = errors.New("access: not allowed for this role")

// ErrReasonRequired is returned when a command needs a reason and has none.
var ErrReasonRequired = errors.New("access: a reason is required")

// Role is what a person is trusted with.
type Role string

// The five roles.
const (
	Viewer   Role = "viewer"
	Operator Role = "operator"
	Reviewer Role = "reviewer"
	Approver Role = "approver"
	Admin    Role = "admin"
)

// Roles lists all roles, least first.
var Roles = []Role{Viewer, Operator, Reviewer, Approver, Admin}

// Act is something a role may be allowed to do.
type Act string

// The acts that the policy table knows.
const (
	Read                Act = "read"
	ReadPayload         Act = "read_payload" // unmasked
	PlanReplay          Act = "plan_replay"
	StartReplay         Act = "start_replay"
	ApproveReplay       Act = "approve_replay"
	EditLetter          Act = "edit_letter" // with ReadPayload
	ControlTry          Act = "control_demo"
	DiscardLetters      Act = "discard_letters" // and restore them
	TriageFaults        Act = "triage_faults"   // assign, mute, note
	Comment             Act = "comment"
	SaveSearch          Act = "save_search"  // one's own
	ShareSearch         Act = "share_search" // with everybody
	PauseConsumer       Act = "pause_consumer"
	RetryOutbox         Act = "retry_outbox"
	SkipOutbox          Act = "skip_outbox" // asks for it
	ApproveOutbox       Act = "approve_outbox"
	RunJob              Act = "run_reconciliation" // and assign and comment its breaks
	ExplainBreak        Act = "explain_break"
	SignOff             Act = "sign_off" // not one's own run
	ProposeJob          Act = "propose_job"
	ApproveJob          Act = "approve_job" // not one's own proposal
	ProposeCompensation Act = "propose_compensation"
	ApproveCompensation Act = "approve_compensation" // not one's own
	ControlCompensation Act = "control_compensation" // pause, cancel, retry
	AckAlert            Act = "acknowledge_alert"
	TestAlert           Act = "test_alert"
	RunChecks           Act = "run_checks"
	MuteCheck           Act = "mute_check"
	Configure           Act = "configure"
	ManageUsers         Act = "manage_users"
	ManageTokens        Act = "manage_tokens" // one's own
)

// policy is the one table. Nobody may approve what they asked for themselves:
// the domain call checks that, whatever the role.
var policy = map[Act][]Role{
	Read:                {Viewer, Operator, Reviewer, Approver, Admin},
	ReadPayload:         {Operator, Reviewer, Approver, Admin},
	PlanReplay:          {Operator, Admin},
	StartReplay:         {Operator, Admin},
	ApproveReplay:       {Approver, Admin},
	EditLetter:          {Operator, Admin},
	ControlTry:          {Operator, Admin},
	DiscardLetters:      {Operator, Admin},
	TriageFaults:        {Operator, Admin},
	Comment:             {Operator, Reviewer, Approver, Admin},
	SaveSearch:          {Viewer, Operator, Reviewer, Approver, Admin},
	ShareSearch:         {Operator, Reviewer, Approver, Admin},
	PauseConsumer:       {Operator, Admin},
	RetryOutbox:         {Operator, Admin},
	SkipOutbox:          {Operator, Admin},
	ApproveOutbox:       {Approver, Admin},
	RunJob:              {Operator, Reviewer, Admin},
	ExplainBreak:        {Reviewer, Admin},
	SignOff:             {Reviewer, Admin},
	ProposeJob:          {Operator, Reviewer, Admin},
	ApproveJob:          {Approver, Admin},
	ProposeCompensation: {Operator, Reviewer, Admin},
	ApproveCompensation: {Approver, Admin},
	ControlCompensation: {Operator, Admin},
	AckAlert:            {Operator, Reviewer, Approver, Admin},
	TestAlert:           {Admin},
	RunChecks:           {Operator, Admin},
	MuteCheck:           {Operator, Admin},
	Configure:           {Admin},
	ManageUsers:         {Admin},
	ManageTokens:        {Viewer, Operator, Reviewer, Approver, Admin},
}

// Actor is who does something, from where, and why. It goes into audit_log.
type Actor struct {
	User   string // account name; "system" for the console itself
	Role   Role
	Via    string // session, token:<name>, cli, system
	From   string // remote address, without port
	Reason string // may be empty where no reason is asked
}

// System is the console acting by itself.
func System() Actor { return Actor{User: "system", Role: Admin, Via: "system"} }

// Check returns ErrForbidden, wrapped with who and what, unless the actor's
// role allows the act.
func (a Actor) Check(act Act) error {
	if slices.Contains(policy[act], a.Role) {
		return nil
	}
	return fmt.Errorf("%w: %s may not %s", ErrForbidden, a.Role, act)
}

// May reports whether the actor's role allows the act.
func (a Actor) May(act Act) bool { return a.Check(act) == nil }

// RolesFor lists the roles that allow the act, for the sentence that says whom to ask.
func RolesFor(act Act) []Role { return slices.Clone(policy[act]) }

// AtMost reports whether r is no more than max: a token's role is at most its user's.
func (r Role) AtMost(max Role) bool {
	for act, roles := range policy {
		if slices.Contains(roles, r) && !slices.Contains(policy[act], max) {
			return false
		}
	}
	return slices.Contains(Roles, r)
}

// Within is what is left of r for somebody who holds max: r or max, whichever
// is less, and Viewer, which every role includes, where neither is.
func (r Role) Within(max Role) Role {
	switch {
	case r.AtMost(max):
		return r
	case max.AtMost(r):
		return max
	default:
		return Viewer
	}
}
