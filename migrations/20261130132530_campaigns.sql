-- Campaigns: how a replay is paced, what holds it, plans that are made in steps,
-- revisions of letters, and times at which something starts by itself. Adds
-- columns with constant defaults to replay and replay_item, which locks them for
-- a moment and rewrites no row, and an index to replay_outcome, which holds its
-- writers up while it is built; the tables are new.
-- +goose Up
alter table replay
  add column pace jsonb not null default '{}',          -- dlq.Pace
  add column rung int not null default 0,               -- rungs of the ladder that were passed
  add column paced_until timestamptz,                   -- by its rate nothing is sent before
  add column stop_bad int not null default 0,           -- failures, and items tried, that a person saw and went on:
  add column stop_tried int not null default 0,         -- the stop rule counts from there
  add column wait_key text, add column wait_text text, add column wait_args jsonb,  -- why nothing is sent now; null: it is
  add column wait_since timestamptz,
  add column approved_digest bytea,                     -- what was approved: set and pace
  add column request jsonb,                             -- dlq.PlanRequest of a plan that is made in steps
  add column plan_total int not null default 0,         -- letters that it has to judge
  add column plan_after uuid,                           -- the last letter that it has judged
  add column elders int not null default 0,             -- items with an open elder of the same key outside the set
  add column elders_bounded boolean not null default false,
  add column redo_of bigint;                            -- the replay whose failed items these are
alter table replay_item
  add column revision int not null default 0,           -- of letter_id, pinned at plan; 0: as it arrived
  add column revision_newest int not null default 0;    -- of all its letters, at plan: a later one leaves the item out

create index replay_outcome_bad on replay_outcome (replay_id, item_no) where outcome in (5, 6, 7, 9, 10);
  -- failed again, swallowed, not seen, not sent, unconfirmed: what the stop rule counts; a second or so per million rows

create table replay_draft (                  -- letters of a plan that is being made, as judged
  replay_id bigint not null, letter_id uuid not null,
  judged jsonb not null,                     -- dlq.draftLetter
  primary key (replay_id, letter_id)
);
create table replay_elder (                  -- an open letter of the same key that came before an item and is not in the set
  replay_id bigint not null, no int not null, letter_id uuid not null,
  primary key (replay_id, no, letter_id)
);

create table letter_revision (               -- an edited form of a letter; written once
  letter_id uuid not null, no int not null check (no > 0),
  base int not null default 0,               -- the revision that it was made from; 0: the letter as it arrived
  key bytea, value bytea,                    -- null is not empty
  headers bytea not null,                    -- dlq.EncodeHeaders
  sensitive boolean not null default false,  -- a sensitive header was changed
  digest bytea not null,                     -- SHA-256 of key, value and headers
  reason text not null,
  created_by text not null, created_at timestamptz not null default now(),
  primary key (letter_id, no)
);

create table letter_unpark (                 -- letters that may be replayed beyond the cap
  letter_id uuid primary key,
  replays int not null,                      -- dead_letter.replay_count when it was allowed: the cap counts from there
  reason text not null,
  created_by text not null, created_at timestamptz not null default now()
);

create table schedule (                      -- what starts by itself
  kind text collate "C" not null,            -- such as replay.start
  ref text collate "C" not null,             -- what of that kind
  next_at timestamptz not null,
  tries int not null default 0, error text,  -- of the last try
  primary key (kind, ref)
);
create index schedule_next on schedule (next_at);

-- +goose Down
drop index replay_outcome_bad;
drop table schedule;
drop table letter_unpark;
drop table letter_revision;
drop table replay_elder;
drop table replay_draft;
alter table replay_item drop column revision, drop column revision_newest;
alter table replay
  drop column pace, drop column rung, drop column paced_until, drop column stop_bad, drop column stop_tried, drop column wait_key,
  drop column wait_text, drop column wait_args, drop column wait_since, drop column approved_digest,
  drop column request, drop column plan_total, drop column plan_after, drop column elders,
  drop column elders_bounded, drop column redo_of;
