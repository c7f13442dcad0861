-- What somebody has to be told about, to whom it was told, and how the telling
-- went. Nothing is locked: all tables are new.
-- +goose Up
create table alert (
  id bigint generated always as identity primary key,
  rule text collate "C" not null,            -- alert.Rule's name
  key text collate "C" not null,             -- what it is about, stable while it lasts
  severity smallint not null check (severity between 1 and 3),  -- alert.Severity
  args jsonb not null,                       -- values of the rule's sentence
  href text not null,                        -- page of the console; "" none
  first_at timestamptz not null, last_at timestamptz not null,
  resolved_at timestamptz,                   -- null: it lasts
  acked_by text, acked_at timestamptz, ack_reason text,
  check ((acked_by is null) = (acked_at is null))
);
create unique index alert_lasting on alert (rule, key) where resolved_at is null;
create index alert_resolved on alert (resolved_at, id);

create table alert_look (                    -- when each rule last looked
  rule text collate "C" primary key,
  at timestamptz not null,
  error text, error_since timestamptz        -- why it could not; null: it could
);

create table alert_channel (                 -- locked by whoever decides what a channel is told
  name text collate "C" primary key,
  told_at timestamptz                        -- when it was last told something: throttles
);

create table alert_told (                    -- which channel knows of which alert
  alert_id bigint not null references alert on delete cascade,
  channel text collate "C" not null,
  told_at timestamptz not null,              -- last: reminders count from here
  ended boolean not null default false,      -- it was told that it has ended
  primary key (alert_id, channel)
);

create table alert_delivery (                -- one message to one channel
  id bigint generated always as identity primary key,
  channel text collate "C" not null,
  kind smallint not null check (kind between 1 and 4),    -- alert.Kind
  alerts bigint[] not null,
  state smallint not null default 1 check (state between 1 and 3),  -- pending, sent, failed
  tries int not null default 0, error text,  -- of the last try
  created_at timestamptz not null, done_at timestamptz,
  check ((state = 1) = (done_at is null))
);
create index alert_delivery_channel on alert_delivery (channel, id);

-- +goose Down
drop table alert_delivery;
drop table alert_told;
drop table alert_channel;
drop table alert_look;
drop table alert;
