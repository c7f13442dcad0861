package interop_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"oncemore/internal/testkit"
)

// console is the product as its users have it: the command, a config file, and
// the API with a token.
type console struct {
	*testing.T
	binary, file string
	env          []string
	url, token   string
}

// startConsole builds the command, prepares its database and an operator, and
// serves until the test ends. config is console.yaml without the address.
func startConsole(t *testing.T, config string, env ...string) *console {
	t.Helper()
	address := fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(t))
	folder := t.TempDir()
	c := &console{T: t, binary: filepath.Join(folder, "console"), file: filepath.Join(folder, "console.yaml"), env: append(os.Environ(), env...), url: "http://" + address}
	if out, err := exec.Command("go", "build", "-o", c.binary, "../cmd/console").CombinedOutput(); err != nil {
		t.Fatalf("build the console: %v: %s", err, out)
	}
	if err := os.WriteFile(c.file, []byte("listen: "+address+"\n"+config), 0o600); err != nil {
		t.Fatal(err)
	}
	c.run("", "migrate")
	c.run("correct horse\n", "user", "add", "ada", "--role", "operator")
	c.token = strings.TrimSpace(c.run("", "token", "create", "ada", "interop", "--role", "operator"))
	c.serve()
	return c
}

func (c *console) command(args ...string) *exec.Cmd {
	cmd := exec.Command(c.binary, append(args, "--config", c.file)...)
	cmd.Env = c.env
	return cmd
}

// run runs a command to its end and returns what it printed.
func (c *console) run(input string, args ...string) string {
	c.Helper()
	cmd := c.command(args...)
	cmd.Stdin = strings.NewReader(input)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		c.Fatalf("console %v: %v: %s", args, err, errs.String())
	}
	return out.String()
}

func (c *console) serve() {
	c.Helper()
	startProcess(c.T, c.command("serve"))
	testkit.Eventually(c, time.Minute, func() bool {
		resp, err := http.Get(c.url + "/readyz")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	}, "the console is ready")
}

// startProcess lets the process run until the test ends. What it wrote is shown
// when the test failed, or when the process did not end by itself.
func startProcess(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", cmd.Path, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("end %s: %v", cmd.Path, err)
		}
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			t.Errorf("%s did not end", cmd.Path)
			cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("%s wrote:\n%s", filepath.Base(cmd.Path), log.String())
		}
	})
}

func (c *console) get(path string, into any) {
	c.Helper()
	c.call(http.MethodGet, path, nil, into)
}

func (c *console) post(path string, body, into any) {
	c.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		c.Fatal(err)
	}
	c.call(http.MethodPost, path, bytes.NewReader(text), into)
}

func (c *console) call(method, path string, body io.Reader, into any) {
	c.Helper()
	req, err := http.NewRequestWithContext(c.Context(), method, c.url+"/api/v1"+path, body)
	if err != nil {
		c.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		c.Fatal(err)
	}
	if resp.StatusCode >= 300 {
		c.Fatalf("%s %s: %s %s", method, path, resp.Status, answer)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		c.Fatalf("%s %s: %v: %s", method, path, err, answer)
	}
}

type letter struct {
	ID            string  `json:"id"`
	State         string  `json:"state"`
	Dialect       string  `json:"dialect"`
	EventID       *string `json:"event_id"`
	ConsumerGroup *string `json:"consumer_group"`
	Attempts      *int    `json:"attempts"`
	Occurrences   int     `json:"occurrences"`
	Error         struct {
		Class, Message *string
	} `json:"error"`
	Origin struct {
		Topic     *string
		Partition *int32
		Offset    *int64
	} `json:"origin"`
}

type letterBody struct {
	Value   []byte `json:"value_b64"`
	Headers []struct {
		Name  string `json:"name"`
		Value []byte `json:"value_b64"`
	} `json:"headers"`
}

func (b letterBody) headerBytes() (n int) {
	for _, h := range b.Headers {
		n += len(h.Name) + len(h.Value)
	}
	return n
}

// letters are those of a dead-letter topic, newest first.
func (c *console) letters(source string) []letter {
	c.Helper()
	var list struct{ Items []letter }
	c.get("/letters?source="+source, &list)
	return list.Items
}

// open waits for the event's open letter, by then with so many occurrences.
func (c *console) open(source, event string, occurrences int) (found letter) {
	c.Helper()
	testkit.Eventually(c, time.Minute, func() bool {
		for _, l := range c.letters(source) {
			if l.EventID != nil && *l.EventID == event && l.State == "open" && l.Occurrences == occurrences {
				found = l
				return true
			}
		}
		return false
	}, "an open letter of %s in %s with %d occurrences", event, source, occurrences)
	return found
}

func (c *console) body(id string) (b letterBody) {
	c.Helper()
	c.get("/letters/"+id+"/body", &b)
	return b
}

// verdict is what a replay to the narrowest target would do in the group.
func (c *console) verdict(id, group string) string {
	c.Helper()
	var all struct {
		Items []struct {
			ConsumerGroup *string `json:"consumer_group"`
			Verdict       *string
		}
	}
	c.get("/letters/"+id+"/verdicts", &all)
	for _, v := range all.Items {
		if v.Verdict != nil && (v.ConsumerGroup == nil || *v.ConsumerGroup == group) {
			return *v.Verdict
		}
	}
	c.Fatalf("letter %s has no verdict for %s: %+v", id, group, all)
	return ""
}

type plan struct {
	ID           int64
	Total        int
	RefusedTotal int `json:"refused_total"`
	Verdicts     map[string]int
}

type item struct {
	Topic     *string
	Partition *int32
	Offset    *int64
	BytesFrom *string `json:"bytes_from"`
	Groups    []struct {
		ConsumerGroup *string `json:"consumer_group"`
		Outcome       *string
	}
}

// replaySafely is the one click on a letter.
func (c *console) replaySafely(id string) (p plan) {
	c.Helper()
	c.post("/replays", map[string]any{"letter_ids": []string{id}, "start": "safe", "reason": "interop"}, &p)
	return p
}

// replayed is one click on a letter, waited for: the item with its outcome.
func (c *console) replayed(id string) (item, string) {
	c.Helper()
	p := c.replaySafely(id)
	if p.Total != 1 {
		c.Fatalf("plan for letter %s: %+v", id, p)
	}
	var replay struct {
		State    string
		Outcomes map[string]int
	}
	testkit.Eventually(c, 90*time.Second, func() bool {
		c.get(fmt.Sprintf("/replays/%d", p.ID), &replay)
		return replay.State == "done"
	}, "replay %d is done", p.ID)
	var items struct{ Items []item }
	c.get(fmt.Sprintf("/replays/%d/items", p.ID), &items)
	if len(items.Items) != 1 || len(items.Items[0].Groups) != 1 || items.Items[0].Groups[0].Outcome == nil {
		c.Fatalf("items of replay %d: %+v", p.ID, items)
	}
	return items.Items[0], *items.Items[0].Groups[0].Outcome
}
