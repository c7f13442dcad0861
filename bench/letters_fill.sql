-- One part of the letters: numbers @from to @to - 1 of @total, spread evenly over
-- the months up to now. Half of them are in faults that last, half in faults of a
-- week, the early ones of each being the most frequent.
create temp table part on commit drop as
select n, f, st, full_body, to_timestamp(ms / 1000.0) as t,
  (lpad(to_hex(ms), 12, '0') || '7' || lpad(to_hex(n & 4095), 3, '0') || '8' || substr(md5(n::text), 1, 15))::uuid as id
from (
  select n, ms, r4 < @full::float8 or ms > (extract(epoch from now()) * 1000)::bigint - 30 * 86400000::bigint as full_body,
    case when r1 < 0.5 then 1 + floor(1000 * r2 * r2)::int
         else 1001 + (n * 26 / @total)::int * 37 + floor(37 * r2 * r2)::int end as f,
    (case when r3 < 0.15 then 1 when r3 < 0.1501 then 2 when r3 < 0.8 then 3 else 4 end)::smallint as st
  from (select n, (extract(epoch from now()) * 1000)::bigint - ((@total - n) * (@days * 86400000.0 / @total))::bigint as ms,
          random() r1, random() r2, random() r3, random() r4
        from generate_series(@from::bigint, @to::bigint - 1) n offset 0) s) x
order by 4;

insert into dead_letter (id, fault_id, source_id, group_id, class_id, origin_id, dialect_id, origin_partition, origin_offset,
  drain_partition, drain_offset, event_time, failed_at, key_hash, attempts, event_id, error_message, state, state_at, verdict, verdict_at)
select p.id, f.id, f.source_id, f.group_id, f.class_id, f.origin_id, f.dialect_id, n % 12, n, n % 12, n, t - interval '40 s', t - interval '2 s',
  hashint8extended(n % 1000000, 0), 1 + n % 5, 'payment-success-' || n,
  'Could not apply points for order ' || n || ': account ' || n % 100000 || ' is locked by another transaction, gave up after 4 attempts',
  st, t, case n % 4 when 0 then 11 when 1 then 8 else 10 end, t
from part p join fault f on f.id = p.f;

insert into dead_letter_body (id, key, value, headers)
select id, convert_to('k' || n % 1000000, 'UTF8'),
  convert_to('{"eventId":"payment-success-' || n || '","orderId":"' || n || '","amount":"12.50","note":"' || case when full_body then repeat(md5(n::text), 28) else '' end || '"}', 'UTF8'),
  case when full_body and n % 3 = 0 then @stack::bytea else @headers::bytea end
from part;

insert into letter_identity (bucket, hash, letter_id) select (extract(epoch from t) / 3600)::int, md5(n::text)::uuid, id from part;

insert into letter_verdict (letter_id, group_id, verdict, reached, asked_at)
select p.id, g.group_id, 10, true, t from part p join fault f on f.id = p.f cross join lateral (values (f.group_id), (1 + f.group_id % 40)) g(group_id)
where st = 1 and n % 4 = 0;

insert into letter_occurrence (letter_id, at, source_id) select p.id, t, f.source_id from part p join fault f on f.id = p.f where n % 50 = 0;
