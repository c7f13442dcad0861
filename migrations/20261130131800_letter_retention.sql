-- Months of letters that were dropped, and whether what belonged to their letters
-- is gone from the other tables as well. Nothing is locked: the table is new.
-- +goose Up
create table letter_month_dropped (
  month date primary key,
  letters bigint not null,
  dropped_at timestamptz not null default now(),
  swept_at timestamptz                       -- null: the sweep is under way
);

-- +goose Down
select 1;
