-- What people made of findings, and how each answer changed. Nothing is locked:
-- the tables are new.
-- +goose Up
create table check_mute (                    -- a finding that nobody wants to hear of for a while
  code text collate "C" not null, subject text not null,
  until timestamptz not null,
  reason text not null, by text not null, at timestamptz not null,
  primary key (code, subject)
);
create table check_history (                 -- one row per change of an answer
  id bigint generated always as identity primary key,
  code text collate "C" not null, subject text not null,
  severity smallint not null check (severity between 1 and 5),
  sentence jsonb not null,                   -- check.Text
  at timestamptz not null
);
create index check_history_finding on check_history (code, subject, id);

-- +goose Down
drop table check_history;
drop table check_mute;
