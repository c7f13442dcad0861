package reconcile

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

var allKinds = []kind{kindText, kindInt, kindUUID, kindBytes}

// drawPart gives a key's part as text, often one that is nearly another.
func drawPart(t *rapid.T, k kind) string {
	switch k {
	case kindText:
		return rapid.OneOf(rapid.StringOfN(rapid.RuneFrom([]rune("a\u0000\u0001\u00ff\uffff\U0001F600 ")), 0, 4, -1), rapid.String()).Draw(t, "text")
	case kindInt:
		return fmt.Sprint(rapid.OneOf(rapid.SampledFrom([]int64{-1 << 63, -1, 0, 1, 255, 256, 1<<63 - 1}), rapid.Int64()).Draw(t, "int"))
	case kindUUID:
		return uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid")).String()
	}
	return hex.EncodeToString(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0xfe, 0xff}), 0, 4).Draw(t, "bytes"))
}

// compareParts is the order of two keys, one part after the other.
func compareParts(kinds []kind, a, b []string) int {
	for i, k := range kinds {
		order := strings.Compare(a[i], b[i])
		if k == kindInt {
			var x, y int64
			fmt.Sscan(a[i], &x)
			fmt.Sscan(b[i], &y)
			order = cmp.Compare(x, y)
		}
		if order != 0 {
			return order
		}
	}
	return 0
}

// Encoded keys are in the order of their parts, differ where those do, and can be
// read back.
func TestEncodedKeysKeepOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		kinds := rapid.SliceOfN(rapid.SampledFrom(allKinds), 1, 3).Draw(t, "kinds")
		var parts [2][]string
		var keys [2][]byte
		for i := range parts {
			for _, k := range kinds {
				parts[i] = append(parts[i], drawPart(t, k))
			}
			var err error
			if keys[i], err = encodeKey(kinds, parts[i]); err != nil {
				t.Fatal(err)
			}
			back, err := decodeKey(kinds, keys[i])
			if err != nil || !slices.Equal(back, parts[i]) {
				t.Fatalf("%q comes back as %q: %v", parts[i], back, err)
			}
		}
		if got, want := bytes.Compare(keys[0], keys[1]), compareParts(kinds, parts[0], parts[1]); got != want {
			t.Fatalf("%q and %q: encoded %d, want %d", parts[0], parts[1], got, want)
		}
	})
}

// What is stored as a break's key may be damaged: that is an error, not a panic.
func FuzzDecodeKey(f *testing.F) {
	f.Add(byte(0), []byte("a\x00\x00"))
	f.Add(byte(0b01_10_11), []byte{1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0xff, 0, 0})
	f.Fuzz(func(t *testing.T, pick byte, key []byte) {
		var kinds []kind
		for range 3 {
			kinds, pick = append(kinds, allKinds[pick&3]), pick>>2
		}
		parts, err := decodeKey(kinds, key)
		if err == nil && len(parts) != len(kinds) {
			t.Errorf("%x: %q", key, parts)
		}
	})
}

// The order in which both engines give rows is that of the encoded keys: the
// merge would find partners on both sides missing otherwise.
func TestDatabasesSortAsKeysAreEncoded(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	b.exec("CREATE TABLE consumed (t text, n bigint, u uuid, b bytea, amount numeric, currency text, at timestamptz)")
	b.execMySQL("CREATE TABLE effect (t varchar(32)" + utf8CI + ", n bigint, u binary(16), b varbinary(8), amount decimal(9,2), currency char(3), at datetime(6))")
	b.readable()
	random := rand.New(rand.NewPCG(7, 7))
	texts := []rune("aA\u00e9e\u0301\u00df s\t_-%\u4e2d\uffee\U0001F600\u0001")
	seen := map[string]bool{}
	for len(seen) < 600 {
		var text []rune
		for range random.IntN(4) {
			text = append(text, texts[random.IntN(len(texts))])
		}
		n, u, raw := random.Int64()>>random.IntN(64), uuid.UUID{byte(random.IntN(2) * 255), 15: byte(random.IntN(4))}, []byte{0, 0xff, 1}[:random.IntN(4)]
		if id := fmt.Sprintf("%q %d %s %x", string(text), n, u, raw); seen[id] {
			continue
		} else {
			seen[id] = true
		}
		b.exec("INSERT INTO consumed VALUES ($1, $2, $3, $4, 1, 'CNY', $5)", string(text), n, u, raw, noon)
		b.execMySQL("INSERT INTO effect VALUES (?, ?, ?, ?, 1, 'CNY', ?)", string(text), n, u[:], raw, noon)
	}
	side := func(connection, table, columns string) string {
		return fmt.Sprintf("{connection: %s, query: 'select %[3]s, amount, currency, at from %[2]s where at >= :from and at < :to', lookup: 'select %[3]s, amount, currency, at from %[2]s where (%[3]s) in (:keys)'}", connection, table, columns)
	}
	for _, columns := range []string{"t, n, u, b", "n, t, b, u", "u, b, t, n", "b, u, n, t"} {
		job := parseJob(t, "job: order\nwindow: {size: 1h, grace: 5m}\nconsumed: "+side("pg", "consumed", columns)+"\neffect: "+side("my", "effect", columns)+
			"\nkey: ["+columns+"]\nmatch: {mode: one_to_one, amount: amount, currency: currency, consumed_time: at, effect_time: at}\n")
		found, err := Compare(t.Context(), job, b.named, PlanMerge, noon, noon.Add(time.Hour), noon.Add(1000*time.Hour), 10)
		if err != nil {
			t.Fatal(err)
		}
		if len(found.Findings) > 0 || found.Tally.Matched != int64(len(seen)) {
			t.Errorf("by %s: %d of %d match, such as %+v", columns, found.Tally.Matched, len(seen), found.Findings)
		}
	}
}

// Whatever the file holds: a job or a sentence, never a panic.
func FuzzParseJob(f *testing.F) {
	f.Add([]byte(jobText("pg", "my", matchOne+"\ntolerance: {amount: \"0.01\", percent: \"1\", time: 10m, run_total_cap: \"5\"}\nlimits: {statement: 30s, breaks: 1}\nrecheck: [1d]\nschedule: \"15 * * * *\"\n")))
	f.Add([]byte("job: &a [*a]\nkey: {x: }\n"))
	f.Add([]byte("job: x\nwindow: {size: 99999999999999999999h, grace: -1s}\nmatch: 0x1p-2\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		job, err := ParseJob("job.yaml", file)
		switch {
		case err == nil && (job.Name == "" || len(job.Key) == 0 || job.Window.Size <= 0 || job.Consumed.Query == "" || job.Limits.Statement <= 0):
			t.Errorf("accepted, though it lacks something: %+v", job)
		case err != nil && !strings.HasPrefix(err.Error(), "job.yaml:"):
			t.Errorf("an error without a place: %v", err)
		}
	})
}
