-- What almost every letter has is found fastest by walking the newest letters:
-- the planner knows which tokens those are. Nothing is locked for long: the
-- index table is filled by a job that waits.
-- +goose Up
create index letter_token_letter on letter_token (letter_id);

-- +goose Down
drop index letter_token_letter;
