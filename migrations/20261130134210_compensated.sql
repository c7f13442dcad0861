-- What a verdict has to know besides records: which effects a compensation has
-- repaired, and which edited forms of an event were sent. The table is new; the
-- index reads replay_item, where no row has a revision yet, and locks it for that
-- moment.
-- +goose Up
create table letter_compensated (            -- permanent: a replay would repeat the effect
  event_id text collate "C" not null, group_id int not null,
  compensation_id bigint not null,
  at timestamptz not null,
  primary key (event_id, group_id)
);
create index replay_item_revised on replay_item (item_key) where revision <> 0;

-- +goose Down
drop index replay_item_revised;
drop table letter_compensated;
