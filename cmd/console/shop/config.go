package shop

import (
	"embed"
	"strings"
	"text/template"
	"time"
)

// ConfigValues fill in the demo's console.yaml. The files hold secrets.
type ConfigValues struct {
	Listen          string
	ConsoleURLFile  string
	BusinessURLFile string
	ReaderURLFile   string // of the ledger; "": there is no reconciliation
	WriterURLFile   string
	Kafka           string
	Gateway         string
	Since           time.Time // nothing was consumed before
}

// Jobs are the files of the demo's reconcile_dir, by name.
//
//go:embed reconcile
var Jobs embed.FS

//go:embed console.yaml
var configText string

var configTemplate = template.Must(template.New("console.yaml").Parse(configText))

// Config renders the demo's console.yaml, which is read like anybody's.
func Config(v ConfigValues) ([]byte, error) {
	var b strings.Builder
	if err := configTemplate.Execute(&b, v); err != nil {
		return nil, err
	}
	return []byte(b.String()), nil
}

// CompleteSince is a day before the shop opened: its topics and tables are new,
// so the consume records are complete even for events of that day.
func (v ConfigValues) CompleteSince() string {
	return v.Since.Add(-24 * time.Hour).UTC().Format(time.RFC3339)
}
