-- The consume record as the specification has it, and the business table.
create table if not exists mq_consume_record (
  id             bigint generated always as identity primary key,
  event_id       varchar(255) collate "C" not null,
  consumer_group varchar(255) collate "C" not null,
  consumed_at    timestamptz not null,
  constraint uk_event_consumer unique (event_id, consumer_group)
);
create table if not exists user_points (user_id text primary key, points bigint not null);
