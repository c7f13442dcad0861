package testkit

import (
	"io"
	"os"
	"testing"
)

// Printed is what f prints to the standard output. It is for tests that are not
// parallel, of examples that need a server.
func Printed(t testing.TB, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out := os.Stdout
	os.Stdout = w
	defer func() { os.Stdout = out }()
	text := make(chan string)
	go func() {
		all, _ := io.ReadAll(r)
		text <- string(all)
	}()
	f()
	w.Close()
	return <-text
}
