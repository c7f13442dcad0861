-- The verdicts that a plan found in each group that its targets reach. Locks
-- replay_target for a moment; no row is rewritten.
-- +goose Up
alter table replay_target add column verdicts jsonb not null default '{}';   -- {"<group id>": {"<verdict>": items}}

-- +goose Down
alter table replay_target drop column verdicts;
