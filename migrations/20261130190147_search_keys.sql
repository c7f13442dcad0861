-- Breaks and compensations are found by key and by amount from the search box.
-- Each index locks its table against writes while it is built: breaks and
-- compensations are thousands, not millions, so that takes moments.
-- +goose Up
create index reconcile_break_key on reconcile_break using gin (key_text);
create index reconcile_break_amount on reconcile_break (abs(amount), id);
create index compensation_key on compensation using gin (key_text);
create index compensation_amount on compensation (abs(amount), id);
-- +goose Down
drop index compensation_amount, compensation_key, reconcile_break_amount, reconcile_break_key;
