-- What the consumers of all replicas report, what operators told them to do,
-- and the last result of every check. Nothing is locked: all tables are new.
-- +goose Up
create table consumer_status (               -- one row per running process and group
  replica text collate "C" not null,         -- unique per process start
  host text not null,                        -- shown to people
  consumer_group text collate "C" not null,
  cluster text not null, topics text[] not null, strategy text not null,
  state smallint not null check (state between 1 and 7),  -- fleet.State
  consumed bigint not null, duplicates bigint not null,
  retried bigint not null, dead_lettered bigint not null,
  partitions int not null,
  last_error text not null default '', last_error_at timestamptz,
  started_at timestamptz not null,
  reported_at timestamptz not null,          -- by this database's clock
  primary key (replica, consumer_group)
) with (fillfactor = 50);                    -- rewritten every two seconds: room for HOT updates
create index consumer_status_group on consumer_status (consumer_group);

create table consumer_total (                -- counters of processes whose row was removed
  consumer_group text collate "C" primary key,
  consumed bigint not null, duplicates bigint not null,
  retried bigint not null, dead_lettered bigint not null,
  last_error text not null default '', last_error_at timestamptz,
  since timestamptz not null                 -- start of the first process that was counted
);

create table consumer_command (              -- the latest wish per group; replicas obey it
  consumer_group text collate "C" primary key,
  paused boolean not null,
  actor text not null, reason text not null default '',
  at timestamptz not null default now()
);

create table check_finding (                 -- the latest answer per check and object
  code text not null, subject text not null,
  severity smallint not null check (severity between 1 and 5),
  finding jsonb not null,                    -- check.Finding
  since timestamptz not null,                -- when it got this severity
  checked_at timestamptz not null,
  primary key (code, subject)
);

-- +goose Down
drop table check_finding;
drop table consumer_command;
drop table consumer_total;
drop table consumer_status;
