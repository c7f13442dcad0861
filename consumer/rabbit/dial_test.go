package rabbit

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// A broker in an alarm reads no more of a connection that has published, so that
// it does not see the farewell either; its heartbeats go on.
func TestFarewellToABrokerThatOnlyBeats(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ended := make(chan error, 1)
	go func() { ended <- onlyBeats(listener) }()
	conn, err := Options{URLs: []string{"amqp://" + listener.Addr().String()}, Heartbeat: time.Second}.dial(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	hung := time.AfterFunc(15*time.Second, func() { listener.Close(); t.Error("the farewell has no end") })
	hangUp(conn)
	hung.Stop()
	if took := time.Since(began); took > closeTimeout+5*time.Second {
		t.Errorf("the farewell took %s", took)
	}
	if err := <-ended; errors.Is(err, errTooLong) {
		t.Error(err)
	}
}

var errTooLong = errors.New("the connection stayed open")

// onlyBeats accepts one connection and sends heartbeats on it until that fails.
func onlyBeats(listener net.Listener) error {
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.ReadFull(conn, make([]byte, len("AMQP0091"))); err != nil {
		return err
	}
	start := append([]byte{0, 9, 0, 0, 0, 0, 0, 0, 0, 5}, "PLAIN\x00\x00\x00\x05en_US"...)
	if err := errors.Join(answer(conn, 10, start), skipFrame(conn),
		answer(conn, 30, []byte{0, 0, 0, 1, 0, 0, 0, 1}), skipFrame(conn), skipFrame(conn), answer(conn, 41, []byte{0})); err != nil {
		return err
	}
	beat := []byte{8, 0, 0, 0, 0, 0, 0, 0xCE}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); <-time.After(200 * time.Millisecond) {
		if _, err := conn.Write(beat); err != nil {
			return err
		}
	}
	return errTooLong
}

// answer sends a method of the class connection.
func answer(conn net.Conn, method byte, args []byte) error {
	frame := []byte{1, 0, 0}
	frame = binary.BigEndian.AppendUint32(frame, uint32(4+len(args)))
	frame = append(append(frame, 0, 10, 0, method), args...)
	_, err := conn.Write(append(frame, 0xCE))
	return err
}

func skipFrame(conn net.Conn) error {
	head := make([]byte, 7)
	if _, err := io.ReadFull(conn, head); err != nil {
		return err
	}
	_, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(head[3:]))+1)
	return err
}
