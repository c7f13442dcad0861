package testkit

import (
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// Wire is a way to RabbitMQ that understands frames: it counts what is
// acknowledged on it, and can be cut, lose acknowledgements or provoke the broker.
type Wire struct {
	url, target string
	listener    net.Listener
	served      sync.WaitGroup

	mu        sync.Mutex
	down      bool
	deaf      bool
	acked     int
	delivered int
	header    int
	conns     map[*wireConn]bool
}

// NewWire opens a way to the broker at an AMQP URL until the test ends.
func NewWire(t testing.TB, amqpURL string) *Wire {
	t.Helper()
	u, err := url.Parse(amqpURL)
	if err != nil {
		t.Fatalf("RabbitMQ's URL: %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	w := &Wire{target: u.Host, listener: listener, conns: map[*wireConn]bool{}}
	u.Host = listener.Addr().String()
	w.url = u.String()
	w.served.Go(w.serve)
	t.Cleanup(func() {
		listener.Close()
		w.Cut()
		w.served.Wait()
	})
	return w
}

// URL is the broker's URL by this way.
func (w *Wire) URL() string { return w.url }

// Acked is how many deliveries were acknowledged on the way, each once per delivery.
func (w *Wire) Acked() int { return w.count(&w.acked) }

// Delivered is how many deliveries came, each time they came.
func (w *Wire) Delivered() int { return w.count(&w.delivered) }

// LastHeader is how many bytes the frame with a message's properties had that was
// published last.
func (w *Wire) LastHeader() int { return w.count(&w.header) }

func (w *Wire) count(n *int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return *n
}

// Cut ends all connections, without a word.
func (w *Wire) Cut() {
	for _, c := range w.all() {
		c.close()
	}
}

// Down cuts all connections and makes new ones fail, until Up.
func (w *Wire) Down() {
	w.set(&w.down, true)
	w.Cut()
}

// Up lets connections through again.
func (w *Wire) Up() { w.set(&w.down, false) }

// LoseAcks swallows acknowledgements on their way to the broker.
func (w *Wire) LoseAcks(on bool) { w.set(&w.deaf, on) }

// CloseChannels makes the broker close every channel that consumes, with the code
// of a delivery that was not acknowledged in time: an acknowledgement of something
// that was never delivered does that.
func (w *Wire) CloseChannels() {
	for _, c := range w.all() {
		for _, channel := range c.consuming() {
			c.toBroker(ackFrame(channel, 1<<40))
		}
	}
}

func (w *Wire) set(flag *bool, on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*flag = on
}

func (w *Wire) all() []*wireConn {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*wireConn
	for c := range w.conns {
		all = append(all, c)
	}
	return all
}

func (w *Wire) serve() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		broker, err := net.Dial("tcp", w.target)
		if err != nil {
			client.Close()
			continue
		}
		c := &wireConn{wire: w, client: client, broker: broker, open: map[uint16]map[uint64]bool{}}
		w.mu.Lock()
		down := w.down
		w.conns[c] = true
		w.mu.Unlock()
		if down {
			c.close()
			continue
		}
		w.served.Go(c.fromClient)
		w.served.Go(c.fromBroker)
	}
}

// wireConn is one connection on the way. open are the deliveries of each channel
// that are not acknowledged.
type wireConn struct {
	wire           *Wire
	client, broker net.Conn
	writing        sync.Mutex // of whole frames to the broker

	mu   sync.Mutex
	open map[uint16]map[uint64]bool
}

func (c *wireConn) close() {
	c.client.Close()
	c.broker.Close()
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	delete(c.wire.conns, c)
}

func (c *wireConn) consuming() []uint16 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []uint16
	for channel := range c.open {
		all = append(all, channel)
	}
	return all
}

const protocolHeader = 8 // "AMQP" and the version, before the first frame

func (c *wireConn) fromClient() {
	defer c.close()
	if _, err := io.CopyN(c.broker, c.client, protocolHeader); err != nil {
		return
	}
	for {
		f, err := readFrame(c.client)
		if err != nil {
			return
		}
		if f.is(basicAck) && c.wire.isDeaf() {
			continue
		}
		if !c.toBroker(f) {
			return
		}
		if f[0] == headerFrame {
			c.wire.noteHeader(len(f))
		}
		if f.is(basicAck) {
			c.settle(f.channel(), f.tag(), f[len(f)-2]&1 == 1)
		}
	}
}

func (w *Wire) noteHeader(size int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.header = size
}

func (w *Wire) isDeaf() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.deaf
}

func (c *wireConn) toBroker(f frame) bool {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.broker.Write(f)
	return err == nil
}

func (c *wireConn) fromBroker() {
	defer c.close()
	for {
		f, err := readFrame(c.broker)
		if err != nil {
			return
		}
		if f.is(basicDeliver) {
			c.deliver(f.channel(), f.tag())
		}
		if _, err := c.client.Write(f); err != nil {
			return
		}
	}
}

func (c *wireConn) deliver(channel uint16, tag uint64) {
	c.mu.Lock()
	if c.open[channel] == nil {
		c.open[channel] = map[uint64]bool{}
	}
	c.open[channel][tag] = true
	c.mu.Unlock()
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	c.wire.delivered++
}

func (c *wireConn) settle(channel uint16, tag uint64, multiple bool) {
	n := 0
	c.mu.Lock()
	for t := range c.open[channel] {
		if t == tag || multiple && t < tag {
			delete(c.open[channel], t)
			n++
		}
	}
	c.mu.Unlock()
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	c.wire.acked += n
}

// frame is a whole frame of AMQP 0-9-1: type, channel, size, payload, end.
type frame []byte

const (
	frameHead    = 7
	frameEnd     = 0xCE
	methodFrame  = 1
	headerFrame  = 2
	basicDeliver = 60<<16 | 60 // class and method
	basicAck     = 60<<16 | 80
)

func readFrame(r io.Reader) (frame, error) {
	head := make([]byte, frameHead)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	f := append(head, make([]byte, binary.BigEndian.Uint32(head[3:])+1)...)
	_, err := io.ReadFull(r, f[frameHead:])
	return f, err
}

func (f frame) channel() uint16 { return binary.BigEndian.Uint16(f[1:]) }

func (f frame) is(method uint32) bool {
	return f[0] == methodFrame && len(f) > frameHead+4 && binary.BigEndian.Uint32(f[frameHead:]) == method
}

// tag is the delivery tag; in a deliver frame the consumer's name comes before it.
func (f frame) tag() uint64 {
	at := frameHead + 4
	if f.is(basicDeliver) {
		at += 1 + int(f[at])
	}
	return binary.BigEndian.Uint64(f[at:])
}

func ackFrame(channel uint16, tag uint64) frame {
	f := frame{methodFrame}
	f = binary.BigEndian.AppendUint16(f, channel)
	f = binary.BigEndian.AppendUint32(f, 4+8+1)
	f = binary.BigEndian.AppendUint32(f, basicAck)
	f = binary.BigEndian.AppendUint64(f, tag)
	return append(f, 0, frameEnd)
}
