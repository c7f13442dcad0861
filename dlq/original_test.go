package dlq

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/internal/testkit"
)

// produce appends records to partition 0 of a topic and gives their offsets.
func produce(t testing.TB, c *Cluster, topic string, records ...*kgo.Record) []int64 {
	t.Helper()
	offsets := make([]int64, len(records))
	client, err := c.NewClient(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, r := range records {
		r.Topic = topic
	}
	if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatalf("produce to %s: %v", topic, err)
	}
	for i, r := range records {
		offsets[i] = r.Offset
	}
	return offsets
}

// trim deletes the records before an offset.
func trim(t testing.TB, c *Cluster, topic string, before int64) {
	t.Helper()
	if _, err := c.Admin.DeleteRecords(t.Context(), offsetsOf(topic, before)); err != nil {
		t.Fatalf("delete records of %s: %v", topic, err)
	}
}

func TestOriginalIsComparedByteForByte(t *testing.T) {
	t.Parallel()
	onBrokers(t, func(t *testing.T, addr string) {
		s := newSeed(t)
		c := clusterAt(t, addr)
		topic := testkit.Topic(t, addr, "origin", 1)
		produced := time.Now().Add(-30 * time.Minute).Truncate(time.Millisecond)
		record := func(key, value []byte, headers ...kgo.RecordHeader) *kgo.Record {
			return &kgo.Record{Key: key, Value: value, Headers: headers, Timestamp: produced}
		}
		id := kgo.RecordHeader{Key: "event-id", Value: []byte("e-1")}
		offsets := produce(t, c, topic,
			record([]byte("gone"), []byte("e-1")),
			record([]byte("k"), []byte(`{"a":1}`), id, kgo.RecordHeader{Key: "null"}),
			record(nil, []byte{}, id),
			record([]byte("k"), []byte(`{"a": 1}`), id),
			record([]byte("k"), []byte("another event")),
			record([]byte("k"), []byte("timed")),
		)
		trim(t, c, topic, offsets[1])
		origins := NewOrigins(s.pool, NewTopology(clusters(c), time.Now))
		letter := func(offset int64, event string, key, value []byte) seedLetter {
			return seedLetter{event: event, topic: topic, partition: ptr(int32(0)), offset: &offset, key: key, value: value}
		}
		timed := letter(offsets[5], "", nil, []byte("rewritten"))
		timed.eventTime = &produced
		cases := []struct {
			name       string
			letter     seedLetter
			state      OriginalState
			reason     string
			key, value bool // differ
		}{
			{"equal", letter(offsets[1], "e-1", []byte("k"), []byte(`{"a":1}`)), OriginalEqual, "", false, false},
			{"equal, no event id", letter(offsets[4], "", []byte("k"), []byte("another event")), OriginalEqual, "", false, false},
			{"null and empty are kept apart", letter(offsets[2], "e-1", []byte{}, nil), OriginalDiffers, "", true, true},
			{"written anew", letter(offsets[3], "e-1", []byte("k"), []byte(`{"a":1}`)), OriginalDiffers, "", false, true},
			{"another event stands there", letter(offsets[4], "e-1", []byte("k"), []byte(`{"a":1}`)), OriginalGone, "reason.original.other", false, false},
			{"known by its time", timed, OriginalDiffers, "", true, true},
			{"trimmed", letter(offsets[0], "e-1", nil, nil), OriginalGone, "reason.original.trimmed", false, false},
			{"beyond the end", letter(offsets[5]+10, "e-1", nil, nil), OriginalGone, "reason.original.trimmed", false, false},
			{"not named", seedLetter{event: "e-1", topic: topic}, OriginalNotNamed, "reason.original.not_named", false, false},
			{"no cluster", seedLetter{event: "e-1", cluster: "gone", topic: topic, partition: ptr(int32(0)), offset: ptr(int64(0))}, OriginalUnread, "reason.original.no_cluster", false, false},
		}
		var ids []uuid.UUID
		for _, k := range cases {
			ids = append(ids, s.add(k.letter)...)
		}
		subjects, err := loadSubjects(t.Context(), s.pool, ids)
		if err != nil {
			t.Fatal(err)
		}
		all, err := origins.Originals(t.Context(), subjects)
		if err != nil {
			t.Fatal(err)
		}
		for i, k := range cases {
			o := all[ids[i]]
			if o.State != k.state || o.Reason.Key != k.reason || o.KeyDiffers != k.key || o.ValueDiffers != k.value {
				t.Errorf("%s: %+v", k.name, o)
			}
		}
		if h := all[ids[0]].Body.Headers; len(h) != 2 || h[1].Value != nil {
			t.Errorf("headers of the origin: %+v", h)
		}
		if n := s.one("SELECT count(*) FROM dead_letter WHERE flags & $1 <> 0", int32(FlagOriginRead)); n != 0 {
			t.Errorf("looking at many saved %d", n)
		}
		for i, want := range map[int]Flag{0: FlagOriginRead, 3: FlagOriginRead | FlagCopyDiffers, 6: 0} {
			if _, err := origins.Original(t.Context(), ids[i]); err != nil {
				t.Fatal(err)
			}
			d, err := NewLetters(s.pool).Get(t.Context(), ids[i])
			if err != nil || d.Flags != want || (want != 0) != (d.EventTime != nil && d.EventTime.Equal(produced)) {
				t.Errorf("%s: flags %b, event time %v, %v", cases[i].name, d.Flags, d.EventTime, err)
			}
		}
		if _, err := origins.Original(t.Context(), seedID(time.Now())); !errors.Is(err, ErrNotFound) {
			t.Errorf("an absent letter: %v", err)
		}
	})
}

func TestOriginalsFarApartAreSoughtNotReadOver(t *testing.T) {
	t.Parallel()
	onBrokers(t, func(t *testing.T, addr string) {
		s := newSeed(t)
		c := clusterAt(t, addr)
		topic := testkit.Topic(t, addr, "far", 2)
		var records []*kgo.Record
		filler := strings.Repeat("x", 1000) // so that one fetch does not hold them all
		for i := range 6000 {
			records = append(records, &kgo.Record{Partition: int32(i % 2), Value: fmt.Appendf(nil, "event-%d.%s", i, filler)})
		}
		produce(t, c, topic, records...)
		var ids []uuid.UUID
		var want []int
		for i := 0; i < 6000; i += 1 + i%7*101 {
			ids = append(ids, s.add(seedLetter{event: fmt.Sprintf("event-%d.", i), topic: topic, partition: ptr(int32(i % 2)), offset: ptr(int64(i / 2)), value: records[i].Value})...)
			want = append(want, i)
		}
		subjects, err := loadSubjects(t.Context(), s.pool, ids)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		all, err := NewOrigins(s.pool, NewTopology(clusters(c), time.Now)).Originals(t.Context(), subjects)
		if err != nil {
			t.Fatal(err)
		}
		for i, id := range ids {
			if o := all[id]; o.State != OriginalEqual {
				t.Errorf("event %d: %+v", want[i], o)
			}
		}
		t.Logf("%d originals among 6,000 in %v", len(ids), time.Since(start))
	})
}

func TestAnOriginalIsNotWaitedForLongerThanThreeSeconds(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	c := clusterAt(t, "127.0.0.1:1")
	id := s.add(seedLetter{event: "e", topic: "t", partition: ptr(int32(0)), offset: ptr(int64(0))})[0]
	start := time.Now()
	o, err := NewOrigins(s.pool, NewTopology(clusters(c), time.Now)).Original(t.Context(), id)
	if err != nil || o.State != OriginalUnread || time.Since(start) > originalTimeout+time.Second {
		t.Errorf("%+v %v after %v", o, err, time.Since(start))
	}
}
