package payload

import (
	"bytes"
	"compress/zlib"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/snappy/xerial"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// MaxInflated is how much of a compressed body is inflated for showing: a small
// body may inflate to any size.
const MaxInflated = 16 << 20

// deepest is how many times a body may be compressed.
const deepest = 3

// inflate undoes compressions that the bytes themselves show, and the one that
// the message names.
func (o *Opened) inflate(named string) {
	named = strings.ToLower(strings.TrimSpace(named))
	for range deepest {
		kind := codecOf(o.Inflated, named)
		if kind == "" {
			return
		}
		inflated, cut, err := inflaters[kind](o.Inflated)
		if err != nil {
			if kind == codecs[named] { // by its first bytes alone it may be something else
				o.problem(why("payload.why.inflate", "encoding", kind, "error", err.Error()))
			}
			return
		}
		o.Inflated, o.Cut, named = inflated, cut, ""
		o.Steps = append(o.Steps, Step{Kind: kind, Size: len(inflated)})
		if cut {
			return
		}
	}
}

// codecs are the names of content encodings.
var codecs = map[string]string{
	"gzip": "gzip", "x-gzip": "gzip", "deflate": "zlib", "zlib": "zlib", "zstd": "zstd",
	"snappy": "snappy", "x-snappy": "snappy", "x-snappy-framed": "snappy", "lz4": "lz4",
}

var inflaters = map[string]func([]byte) ([]byte, bool, error){
	"gzip": inflateGzip, "zlib": inflateZlib, "zstd": inflateZstd, "snappy": inflateSnappy, "lz4": inflateLZ4,
}

var (
	snappyFramed = []byte("\xff\x06\x00\x00sNaPpY")
	snappyXerial = []byte("\x82SNAPPY\x00")
)

// codecOf looks at the first bytes, then at what the message says. "": none.
func codecOf(b []byte, named string) string {
	switch {
	case bytes.HasPrefix(b, []byte("\x1f\x8b\x08")):
		return "gzip"
	case bytes.HasPrefix(b, []byte("\x28\xb5\x2f\xfd")):
		return "zstd"
	case bytes.HasPrefix(b, []byte("\x04\x22\x4d\x18")):
		return "lz4"
	case bytes.HasPrefix(b, snappyFramed), bytes.HasPrefix(b, snappyXerial):
		return "snappy"
	}
	return codecs[named]
}

// atMost reads to the bound. What is broken after some bytes were read counts as
// broken: half a document says nothing of the other half.
func atMost(r io.Reader) ([]byte, bool, error) {
	out, err := io.ReadAll(io.LimitReader(r, MaxInflated+1))
	if len(out) > MaxInflated {
		return out[:MaxInflated], true, nil
	}
	return out, false, err
}

func inflateGzip(b []byte) ([]byte, bool, error) {
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, false, err
	}
	return atMost(r)
}

func inflateZlib(b []byte) ([]byte, bool, error) {
	r, err := zlib.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, false, err
	}
	return atMost(r)
}

// zstdWindow bounds the memory that a frame may ask for.
const zstdWindow = 32 << 20

func inflateZstd(b []byte) ([]byte, bool, error) {
	r, err := zstd.NewReader(bytes.NewReader(b), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
	if err != nil {
		return nil, false, err
	}
	defer r.Close()
	return atMost(r)
}

func inflateLZ4(b []byte) ([]byte, bool, error) { return atMost(lz4.NewReader(bytes.NewReader(b))) }

// inflateSnappy takes the framed form, Java's (xerial) and a bare block. The
// latter two say their size, so that one too large is refused, not cut.
func inflateSnappy(b []byte) ([]byte, bool, error) {
	if bytes.HasPrefix(b, snappyFramed) {
		return atMost(s2.NewReader(bytes.NewReader(b), s2.ReaderMaxBlockSize(64<<10)))
	}
	out, err := xerial.DecodeCapped(make([]byte, 0, MaxInflated), b)
	return bytes.Clone(out), false, err
}
