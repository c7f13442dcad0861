package dlq

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"oncemore/dlq/dialect"
)

// arrivedAt is where an arrival was read.
type arrivedAt struct {
	cluster string
	broker  int16 // of letter_source
	source  string
	topicID uuid.UUID // zero: a queue

	partition int32 // -1: a queue has none
	offset    int64
	at        time.Time // of the dead-letter record itself; zero: none
	reread    bool      // was passed once before: copies are possible
}

// arrival is a dead letter on its way into the tables.
type arrival struct {
	from     arrivedAt
	message  *dialect.Message
	headers  []byte // as stored
	envelope []byte // amqpform.Envelope; nil: Kafka
	read     *dialect.Reading
	pattern  string // normalised error message
	print    uuid.UUID
	identity

	id                           uuid.UUID
	sourceID, dialectID, faultID int32
	groupID, classID, originID   int32
	replayID                     int64 // of the headers that a replay set; 0 none
	itemNo                       int32
	lineage                      uuid.UUID // the letter whose replay failed again; zero: none
	reopens                      bool      // its letter: a replay of it has failed again
	flags                        Flag
}

// understand reads the message. It never fails: one that makes the interpreter
// panic is stored as unknown. amend corrects the reading by what is known of the
// source; nil: nothing is.
func (a *arrival) understand(set *dialect.Set, conf dialect.Configured, log *slog.Logger, amend func(*dialect.Reading)) *arrival {
	defer func() {
		if failure := recover(); failure != nil {
			log.Error("dead letter could not be read, stored as unknown", "source", a.from.source,
				"partition", a.from.partition, "offset", a.from.offset, "error", fmt.Sprint(failure))
			a.forget()
		}
	}()
	a.read = set.Read(a.message, conf)
	if amend != nil {
		amend(a.read)
	}
	a.settle()
	return a
}

// forget keeps only the bytes and the place.
func (a *arrival) forget() {
	a.read, a.flags = dialect.Fallback(a.message.Broker), 0
	a.replayID, a.itemNo, a.lineage = 0, 0, uuid.Nil
	a.settle()
}

// settle derives what the reading decides.
func (a *arrival) settle() {
	a.pattern = normalise(deref(a.read.ExceptionMessage))
	a.print = a.fingerprint()
	a.identity = a.identify()
	a.flags = flagsOf(a.read)
	if a.from.reread {
		a.flags |= FlagPossibleCopy
	}
	a.replayID = headerNumber(a.message, HeaderReplay)
	if item := headerNumber(a.message, HeaderItem); item <= math.MaxInt32 {
		a.itemNo = int32(item)
	}
}

func flagsOf(r *dialect.Reading) Flag {
	var flags Flag
	mark := func(flag Flag, is bool) {
		if is {
			flags |= flag
		}
	}
	mark(FlagOriginGuessed, r.OriginGuessed)
	mark(FlagPositionID, r.PositionID != nil)
	mark(FlagValueNotCarried, !r.CarriesValue)
	mark(FlagTwoLayers, r.TwoLayers)
	mark(FlagFramed, r.Framed)
	return flags
}

// headerNumber is the last header of the name as a positive number, else 0.
func headerNumber(m *dialect.Message, name string) int64 {
	for i := len(m.Headers) - 1; i >= 0; i-- {
		h := m.Headers[i]
		if h.Name != name {
			continue
		}
		text, typed := h.Typed.(string)
		if !typed {
			text = string(h.Value)
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return 0
		}
		return n
	}
	return 0
}

// origin is the topic that the event came from, or the queue.
func (a *arrival) origin() *string {
	if a.from.broker == brokerRabbit {
		return a.read.OriginQueue
	}
	return a.read.OriginTopic
}

func (a *arrival) sourceKey() sourceKey {
	return sourceKey{cluster: a.from.cluster, broker: a.from.broker, name: a.from.source, topic: a.from.topicID}
}

// futureMargin is how far the clocks of producers may be ahead.
const futureMargin = 15 * time.Minute

// eventTime is the origin record's time as the dialect tells it; one in the future
// is not believed.
func (a *arrival) eventTime(now time.Time) *time.Time {
	at := a.read.OriginTime
	if at == nil || !at.After(now.Add(futureMargin)) {
		return at
	}
	a.flags |= FlagEventTimeFuture
	return nil
}

// errorBytes is how much of an error message stands in the letter's row.
const errorBytes = 300

func (a *arrival) errorMessage() *string {
	if a.read.ExceptionMessage == nil {
		return nil
	}
	head := *a.read.ExceptionMessage
	if len(head) > errorBytes+utf8.UTFMax {
		head = cutText(head, errorBytes+utf8.UTFMax) // the rest need not be made storable
	}
	text := cutText(storable(head), errorBytes)
	return &text
}

// keyHash stands for a key where letters of one key are ordered; nil for a null key.
func keyHash(key []byte) *int64 {
	if key == nil {
		return nil
	}
	h := fnv.New64a()
	h.Write(key)
	n := int64(h.Sum64())
	return &n
}

// idSource makes UUIDv7 ids that ascend within a batch, by the database's clock:
// an id names the month that its letter is kept in.
type idSource struct {
	ms  int64
	seq uint16
}

func newIDSource(now time.Time) *idSource { return &idSource{ms: now.UnixMilli()} }

func (s *idSource) next() uuid.UUID {
	id := uuid.New() // its random part is kept
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(s.ms))
	copy(id[:6], ms[2:])
	binary.BigEndian.PutUint16(id[6:], 0x7000|s.seq)
	if s.seq++; s.seq == 1<<12 {
		s.ms, s.seq = s.ms+1, 0
	}
	return id
}
