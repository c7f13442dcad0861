package shop

import (
	"testing"
	"time"

	"oncemore/consumer/effect"
	"oncemore/internal/config"
	"oncemore/reconcile"
)

func TestConfigIsValid(t *testing.T) {
	t.Parallel()
	text, err := Config(ConfigValues{
		Listen: "127.0.0.1:8080", ConsoleURLFile: `/data/with "quotes"/url`, BusinessURLFile: "/data/b", Kafka: "127.0.0.1:9092",
		ReaderURLFile: "/data/reader", WriterURLFile: "/data/writer", Gateway: "http://127.0.0.1:1", Since: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC),
	})
	if err != nil {
		t.Fatal(err)
	}
	conf, err := config.Parse("console.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	if conf.Database.File != `/data/with "quotes"/url` {
		t.Errorf("file of the secret: %q", conf.Database.File)
	}
	if got := conf.Groups[0].Evidence.CompleteSince; !got.Equal(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)) {
		t.Errorf("complete since %s", got)
	}
	if ledger := conf.Connections[len(conf.Connections)-1]; ledger.URL.File != "/data/reader" || ledger.Writer.File != "/data/writer" {
		t.Errorf("ledger %+v", ledger)
	}
	for _, c := range conf.Consumers {
		if c.SQL == "" {
			continue
		}
		if _, err := effect.NewSQL(c.SQL, c.ExpectRows); err != nil {
			t.Errorf("%s: %v", c.Group, err)
		}
	}
}

func TestJobsAreValid(t *testing.T) {
	t.Parallel()
	text, err := Jobs.ReadFile("reconcile/points-vs-paid.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if job, err := reconcile.ParseJob("points-vs-paid.yaml", text); err != nil || job.Name != Job {
		t.Errorf("%v %v", job, err)
	}
}
