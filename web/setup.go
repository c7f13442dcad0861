package web

import (
	"context"

	"oncemore/dlq"
	"oncemore/internal/access"
)

// Setup leads from a config without sources to one with them. It keeps one draft,
// in memory; nothing is written before Save.
type Setup interface {
	// Needed reports whether the running config has no source, and nobody has put
	// the first run off.
	Needed() bool
	// Draft is what was said and found so far, without secrets.
	Draft() SetupDraft
	// Connect asks a broker and keeps what it found. It only reads. Error:
	// *SetupTrouble.
	Connect(ctx context.Context, b SetupBroker) error
	// Choose keeps what is to be drained.
	Choose(s SetupSources)
	// Look asks a business database for tables that look like consume records. It
	// only reads. Error: *SetupTrouble.
	Look(ctx context.Context, d SetupDatabase) error
	// Try looks one event up in a table with its columns as mapped. Errors:
	// *SetupTrouble.
	Try(ctx context.Context, e SetupEvidence) (dlq.EvidenceAnswer, error)
	// Judge keeps the evidence, of one group or several; none: it is skipped.
	Judge(evidence []SetupEvidence)
	// File is the config as it would be. Error: *SetupTrouble, where it would not
	// be one.
	File() (SetupFile, error)
	// Save writes it and begins to serve with it. Errors: access.ErrForbidden,
	// *SetupTrouble.
	Save(ctx context.Context, actor access.Actor) error
	// Later puts the first run off until the process starts again.
	Later()
}

// SetupBroker is how a broker is reached.
type SetupBroker struct {
	Kind string // kafka | rabbitmq
	Name string // of the cluster in the config

	Brokers        string // of Kafka: host:port, with commas between them
	TLS            bool
	Mechanism      string // "": no sign-in
	User, Password string

	URL, ManagementURL string // of RabbitMQ
}

// SetupSources is what is to be drained.
type SetupSources struct {
	Names  []string
	Copy   bool   // of queues: leave the messages where they are
	Header string // that holds the event id; "": as the dialect says
	JSON   string // path in the payload that does
}

// SetupDatabase is how a business database is reached.
type SetupDatabase struct {
	Name string // of the connection in the config
	Kind string // postgres | mysql
	URL  string
}

// SetupEvidence is where one group's consume records are.
type SetupEvidence struct {
	Group                                   string
	Table, EventID, GroupColumn, ConsumedAt string // columns; "": there is none
	Since                                   string // a date or time: no record is missing since then
}

// SetupDraft is what was said and found so far. Passwords and addresses that hold
// them are blank.
type SetupDraft struct {
	Broker    SetupBroker
	Connected bool
	Places    []dlq.DeadPlace
	Sources   SetupSources
	Database  SetupDatabase
	Looked    bool
	Tables    []dlq.EvidenceProposal
	Evidence  []SetupEvidence
	Skipped   bool // the evidence
}

// SetupFile is the config as it would be written.
type SetupFile struct {
	Path    string
	Text    string
	Secrets []string // files with what the config does not hold itself
}

// SetupTrouble is what did not work: the other side's own words and one hint.
type SetupTrouble struct {
	Words string
	Hint  string // catalog key
}

// Error is for logs.
func (t *SetupTrouble) Error() string { return "web: setup: " + t.Words }
