package rabbit

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets the crash tests run this binary as a consumer of its own.
func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		runChild(spec)
		return
	}
	goleak.VerifyTestMain(m)
}
