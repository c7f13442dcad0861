-- What was asked with an idempotency key: the same key with another body is
-- refused rather than answered with a replay that does something else. Locks
-- replay for a moment; no row is rewritten.
-- +goose Up
alter table replay add column request_digest bytea;   -- SHA-256; null without a key

-- +goose Down
alter table replay drop column request_digest;
