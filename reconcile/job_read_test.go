package reconcile

import (
	"strings"
	"testing"
)

// YAML's own numbers look like what is asked for: the sentence says what they lack.
func TestBareAmountIsToldToBeQuoted(t *testing.T) {
	t.Parallel()
	_, err := ParseJob("job.yaml", []byte(jobText("pg", "my", matchOne+"tolerance: {amount: 0.01}\n")))
	if err == nil || !strings.HasSuffix(err.Error(), `tolerance.amount: has to be in quotes: "0.01"`) {
		t.Errorf("%v", err)
	}
}
