package alert

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Channel is one receiver. Its secrets are asked for when they are needed.
type Channel struct {
	Name     string
	Type     Type
	URL      func() (string, error) // of the webhook; it is a secret
	Secret   func() (string, error) // signs (DingTalk, Feishu) or is the bearer token (webhook); nil: none
	Mail     *Mail                  // of Email
	Language string                 // en, zh-Hans; "": en
	Least    Severity               // what is less bad is not told; 0: all
	Rules    []string               // only these; nil: all

	// Clock stamps signatures; nil: time.Now.
	Clock func() time.Time
}

// Type is what a channel speaks.
type Type string

// The types.
const (
	Email    Type = "email"
	Webhook  Type = "webhook" // JSON of our own
	Slack    Type = "slack"
	Teams    Type = "teams" // workflow webhook with an adaptive card
	DingTalk Type = "dingtalk"
	Feishu   Type = "feishu"
	WeCom    Type = "wecom"
)

// Types lists all.
var Types = []Type{Email, Webhook, Slack, Teams, DingTalk, Feishu, WeCom}

func (c Channel) check() error {
	switch {
	case !slices.Contains(Types, c.Type):
		return fmt.Errorf("alert: channel %s: %q is no type", c.Name, c.Type)
	case c.Type == Email && c.Mail == nil:
		return fmt.Errorf("alert: channel %s has no mail server", c.Name)
	case c.Type != Email && c.URL == nil:
		return fmt.Errorf("alert: channel %s has no address", c.Name)
	}
	return nil
}

func (c Channel) takes(r Rule) bool { return c.Rules == nil || slices.Contains(c.Rules, r.Name) }

func (c Channel) now() time.Time {
	if c.Clock == nil {
		return time.Now()
	}
	return c.Clock()
}

// secret is the secret, "" without one.
func (c Channel) secret() (string, error) {
	if c.Secret == nil {
		return "", nil
	}
	return c.Secret()
}

// send delivers one message and returns once the receiver has taken it.
func (c Channel) send(ctx context.Context, m Message) error {
	if c.Type == Email {
		return c.Mail.send(ctx, m)
	}
	address, err := c.URL()
	if err != nil {
		return err
	}
	secret, err := c.secret()
	if err != nil {
		return err
	}
	switch c.Type {
	case Slack:
		return post(ctx, address, "", slackBody(m), said("ok"))
	case Teams:
		return post(ctx, address, "", teamsBody(m), anything)
	case DingTalk:
		return post(ctx, dingtalkAddress(address, secret, c.now()), "", dingtalkBody(m), zero("errcode"))
	case Feishu:
		return post(ctx, address, "", feishuBody(m, secret, c.now()), zero("code", "StatusCode"))
	case WeCom:
		return post(ctx, address, "", wecomBody(m), zero("errcode"))
	}
	return post(ctx, address, secret, m.payload(), anything)
}

// client follows no redirects: a body that was meant for one host goes to no other.
var client = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// post sends JSON and asks took whether the answer means that it was taken.
func post(ctx context.Context, address, token string, body any, took func([]byte) error) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(b))
	if err != nil {
		return errors.New("the address is malformed")
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	req.Header.Set("User-Agent", "oncemore")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 16<<10))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("answered %d: %s", resp.StatusCode, oneLine(string(answer), 200))
	}
	return took(answer)
}

func anything([]byte) error { return nil }

// said takes an answer that is just this word.
func said(word string) func([]byte) error {
	return func(answer []byte) error {
		if strings.TrimSpace(string(answer)) != word {
			return fmt.Errorf("answered: %s", oneLine(string(answer), 200))
		}
		return nil
	}
}

// zero takes an answer whose code is 0, under whichever of the names it stands:
// these services answer 200 to what they refuse.
func zero(names ...string) func([]byte) error {
	return func(answer []byte) error {
		var fields map[string]any
		if err := json.Unmarshal(answer, &fields); err == nil {
			for _, name := range names {
				if code, there := fields[name]; there && code == float64(0) {
					return nil
				}
			}
		}
		return fmt.Errorf("answered: %s", oneLine(string(answer), 200))
	}
}
