-- What people decided about dead rows of outboxes in business databases: the
-- decision is kept here before it is carried out there. Nothing is locked: the
-- table is new.
-- +goose Up
create table outbox_command (
  id bigint generated always as identity primary key,
  outbox text collate "C" not null,          -- connection/table
  row_id bigint not null, event_id text collate "C" not null, target text not null,
  act smallint not null check (act in (1, 2)),            -- outboxes.Act: retry, skip
  state smallint not null check (state between 1 and 5),  -- outboxes.State
  releases bigint not null,                  -- later rows of the key when it was asked
  asked_by text not null, reason text not null, asked_at timestamptz not null default now(),
  decided_by text, decided_reason text, decided_at timestamptz,
  done_at timestamptz,                       -- carried out, or found to be void
  check (act = 1 or decided_by is null or decided_by <> asked_by),
  check ((state in (3, 5)) = (done_at is not null))
);
-- One open command per row: asked, or decided and not yet carried out.
create unique index outbox_command_open on outbox_command (outbox, row_id) where state in (1, 2);

-- +goose Down
drop table outbox_command;
