package dlq

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Subject is what a verdict is asked about: one letter.
type Subject struct {
	LetterID        uuid.UUID
	EventID         *string
	EventIDAlt      *string
	Group           string // "" when not known
	Cluster         string
	Source          string
	OriginTopic     string // or queue; "" when not known
	OriginPartition *int32
	OriginOffset    *int64
	EventTime       *time.Time
	Flags           Flag
	Revision        int        // the edited form that would be sent, the newest unless chosen; 0: as it arrived
	Revisions       int        // how many there are
	KeyHash         int64      // of the message key; 0: none
	Replays         int        // how often it was replayed, since somebody last allowed more
	Published       *Published // of a message of RabbitMQ; nil: Kafka
	Holder          int64      // the replay that asks: its own claims are not "in flight"; 0 none
}

// Route is where a target resolves to for one letter.
type Route struct {
	Cluster string
	Topic   string // or routing key
	Group   string // the one group it is meant for; "" for an origin topic, which reaches all
	// Exchange is RabbitMQ's; "" is the default one, whose routing keys are queues.
	Exchange string
}

// Judged is the verdict of one letter for one target.
type Judged struct {
	LetterID uuid.UUID
	Route    *Route         // nil: the target does not exist for this letter; NoRoute says why
	NoRoute  Reason         // such as reason.no_group_target
	Groups   []GroupVerdict // every known group of the letter, its own first; Reached says which this target reaches
	Headline Verdict        // worst of the reached groups; Unknown without a route
	own      string         // the letter's own group, "" when not known
}

// Own is the verdict of the letter's own group; where the letter names none, the
// worst of those that the target reaches.
func (j Judged) Own() GroupVerdict {
	best := j.Groups[0]
	if j.own != "" {
		return best
	}
	for _, g := range j.Groups[1:] {
		if g.Reached && g.Verdict < best.Verdict {
			best = g
		}
	}
	return best
}

// Judge says what a replay of a letter would do.
type Judge struct {
	pool   *pgxpool.Pool
	topo   *Topology
	groups GroupBook
	clock  func() time.Time
}

// NewJudge judges with the given clusters (by name) and what is known of groups.
func NewJudge(pool *pgxpool.Pool, clusters map[string]*Cluster, groups GroupBook, clock func() time.Time) *Judge {
	return &Judge{pool: pool, topo: NewTopology(clusters, clock), groups: groups, clock: clock}
}

// Topology is the judge's view of the brokers, to be shared.
func (j *Judge) Topology() *Topology { return j.topo }

// Judge judges subjects for a target, in their order. A broker or an evidence
// database that does not answer is a verdict (Unknown), not an error; an error
// means that the console's own database failed, or that ctx ended.
func (j *Judge) Judge(ctx context.Context, subjects []Subject, target Target) ([]Judged, error) {
	inquiries, err := j.inquire(ctx, subjects, target)
	if err != nil {
		return nil, err
	}
	marks, err := j.marks(ctx, subjects)
	if err != nil {
		return nil, err
	}
	found := lookUp(ctx, questions(inquiries), j.clock)
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("judge %d letters: %w", len(subjects), err)
	}
	for i := range inquiries {
		for k := range inquiries[i].groups {
			a := &inquiries[i].groups[k]
			a.fill(found, marks)
			a.verdict, a.reason = a.decide()
		}
	}
	if err := j.checkOrder(ctx, inquiries); err != nil {
		return nil, err
	}
	out := make([]Judged, len(inquiries))
	for i, q := range inquiries {
		out[i] = q.judged()
	}
	return out, nil
}

// questions lists what each evidence table has to be asked, both forms of an id.
func questions(inquiries []inquiry) map[evidencePlace]map[question]bool {
	out := map[evidencePlace]map[question]bool{}
	for _, q := range inquiries {
		for _, a := range q.groups {
			for _, id := range q.subject.ids() {
				if a.known == nil || a.known.Evidence == nil {
					continue
				}
				place := a.known.Evidence.place()
				if out[place] == nil {
					out[place] = map[question]bool{}
				}
				out[place][question{id, a.group}] = true
			}
		}
	}
	return out
}

// ids are the forms of the event id that evidence is asked for; none where the
// letter has no stable id.
func (s Subject) ids() []string {
	if s.EventID == nil || s.Flags&FlagPositionID != 0 {
		return nil
	}
	ids := []string{*s.EventID}
	if s.EventIDAlt != nil && *s.EventIDAlt != *s.EventID {
		ids = append(ids, *s.EventIDAlt)
	}
	return ids
}

// fill adds what was found for the group: a hit on either form of the id counts.
func (a *asked) fill(found map[evidencePlace]answers, known marksOf) {
	a.marks = known.in(a.subject, a.group)
	if a.known == nil || a.known.Evidence == nil {
		return
	}
	answer := found[a.known.Evidence.place()]
	a.failed = answer.failed
	for _, id := range a.subject.ids() {
		if r, ok := answer.records[question{id, a.group}]; ok && (a.record == nil || r.exact) {
			a.record = &r
		}
	}
}

// judged is the result for one letter.
func (q inquiry) judged() Judged {
	j := Judged{LetterID: q.subject.LetterID, Route: q.route, NoRoute: q.noRoute, own: q.subject.Group}
	if q.route == nil {
		j.Headline = Unknown
	}
	for _, a := range q.groups {
		v := GroupVerdict{Group: a.group, Verdict: a.verdict, Reason: a.reason, AskedAt: a.now, Reached: a.reached}
		if a.record != nil && a.record.exact {
			v.Recorded, v.ConsumedAt = true, a.record.at
		}
		j.Groups = append(j.Groups, v)
		if a.reached && (j.Headline == 0 || a.verdict < j.Headline) {
			j.Headline = a.verdict
		}
	}
	return j
}

// JudgeLetters loads the letters and judges them, in the order of ids. Letters
// that do not exist are missing in the result.
func (j *Judge) JudgeLetters(ctx context.Context, ids []uuid.UUID, target Target) ([]Judged, error) {
	subjects, err := j.Subjects(ctx, ids)
	if err != nil {
		return nil, err
	}
	return j.Judge(ctx, subjects, target)
}

const sqlSubjects = `
SELECT d.id, d.event_id, d.event_id_alt, coalesce(g.name, ''), s.cluster, s.name, coalesce(o.name, ''),
  d.origin_partition, d.origin_offset, d.event_time, d.flags,
  coalesce((SELECT max(v.no) FROM letter_revision v WHERE v.letter_id = d.id), 0), d.replay_count - coalesce(u.replays, 0), coalesce(d.key_hash, 0)
FROM dead_letter d
JOIN letter_source s ON s.id = d.source_id
LEFT JOIN letter_name g ON g.id = d.group_id
LEFT JOIN letter_name o ON o.id = d.origin_id
LEFT JOIN letter_unpark u ON u.letter_id = d.id
WHERE d.id = ANY(@ids)`

// Subjects loads what a verdict needs to know about letters, in the order of
// ids; letters that do not exist are left out.
func (j *Judge) Subjects(ctx context.Context, ids []uuid.UUID) ([]Subject, error) {
	return loadSubjects(ctx, j.pool, ids)
}

func loadSubjects(ctx context.Context, pool *pgxpool.Pool, ids []uuid.UUID) ([]Subject, error) {
	rows, err := pool.Query(ctx, sqlSubjects, pgx.NamedArgs{"ids": ids})
	if err != nil {
		return nil, fmt.Errorf("query subjects: %w", err)
	}
	found := make(map[uuid.UUID]Subject, len(ids))
	var s Subject
	_, err = pgx.ForEachRow(rows, []any{&s.LetterID, &s.EventID, &s.EventIDAlt, &s.Group, &s.Cluster, &s.Source,
		&s.OriginTopic, &s.OriginPartition, &s.OriginOffset, &s.EventTime, &s.Flags, &s.Revisions, &s.Replays, &s.KeyHash}, func() error {
		s.Revision = s.Revisions
		found[s.LetterID] = s
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read subjects: %w", err)
	}
	if err := readPublished(ctx, pool, found); err != nil {
		return nil, err
	}
	out := make([]Subject, 0, len(found))
	for _, id := range ids {
		if s, ok := found[id]; ok {
			out = append(out, s)
		}
	}
	return out, nil
}
