-- What an operator asks of a consumer beside its counts: batches that fell back,
-- transactions lost to others, acknowledgements that came too late. Columns with a
-- constant default are added without a rewrite; the lock is short.
-- +goose Up
alter table consumer_status
  add column if not exists filtered bigint not null default 0,
  add column discarded bigint not null default 0,
  add column transactions bigint not null default 0,
  add column fallbacks bigint not null default 0,
  add column contention bigint not null default 0,
  add column stale_acks bigint not null default 0,
  add column reconnects bigint not null default 0;
alter table consumer_total
  add column if not exists filtered bigint not null default 0,
  add column discarded bigint not null default 0,
  add column transactions bigint not null default 0,
  add column fallbacks bigint not null default 0,
  add column contention bigint not null default 0,
  add column stale_acks bigint not null default 0,
  add column reconnects bigint not null default 0;

-- +goose Down
alter table consumer_total
  drop column reconnects, drop column stale_acks, drop column contention, drop column fallbacks, drop column transactions,
  drop column discarded, drop column if exists filtered;
alter table consumer_status
  drop column reconnects, drop column stale_acks, drop column contention, drop column fallbacks, drop column transactions,
  drop column discarded, drop column if exists filtered;
