package draft

import (
	"embed"
	"fmt"
)

//go:embed templates
var templates embed.FS

// Templates are the usual pairs, by name: what was consumed against a ledger; the
// outbox, what was consumed and its effect; dead letters against consume records.
var Templates = []string{"record-ledger", "outbox-record-effect", "letters-records"}

// Template is a job to begin with. What is in angle brackets has to be filled in.
func Template(name string) (string, error) {
	b, err := templates.ReadFile("templates/" + name + ".yaml")
	if err != nil {
		return "", fmt.Errorf("there is no template %q", name)
	}
	return string(b), nil
}
