package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"oncemore/internal/access"
)

// demoInfo is demo.json: all that a newcomer or a script needs to know.
type demoInfo struct {
	URL      string        `json:"url"`
	User     string        `json:"user"`
	Password string        `json:"password"`
	Token    string        `json:"token"`
	Kafka    string        `json:"kafka"`
	Database string        `json:"database"`
	Accounts []demoAccount `json:"accounts"`
}

// demoAccount is one of the accounts.
type demoAccount struct {
	User     string      `json:"user"`
	Password string      `json:"password"`
	Role     access.Role `json:"role"`
	Token    string      `json:"token"`
}

// account returns the account of that name; a new one without secrets else.
func (i demoInfo) account(name string) demoAccount {
	for _, a := range i.Accounts {
		if a.User == name {
			return a
		}
	}
	return demoAccount{User: name}
}

// demoFiles is the data folder.
type demoFiles struct{ dir string }

func (f demoFiles) info() string     { return filepath.Join(f.dir, "demo.json") }
func (f demoFiles) config() string   { return filepath.Join(f.dir, "console.yaml") }
func (f demoFiles) log() string      { return filepath.Join(f.dir, "demo.log") }
func (f demoFiles) database() string { return filepath.Join(f.dir, "database-url") }
func (f demoFiles) postgres() string { return filepath.Join(f.dir, "postgres") }
func (f demoFiles) kafka() string    { return filepath.Join(f.dir, "kafka") }

// lastInfo is what the run before wrote; empty without one.
func (f demoFiles) lastInfo() (demoInfo, error) {
	var info demoInfo
	b, err := os.ReadFile(f.info())
	if errors.Is(err, fs.ErrNotExist) {
		return info, nil
	}
	if err != nil {
		return info, fmt.Errorf("read what the last run left: %w", err)
	}
	if err := json.Unmarshal(b, &info); err != nil {
		return info, fmt.Errorf("%s is damaged (%w): start anew with --reset", f.info(), err)
	}
	return info, nil
}

// saveInfo replaces demo.json at once: whoever waits for it reads it whole.
func (f demoFiles) saveInfo(info demoInfo) error {
	b, err := json.MarshalIndent(info, "", "  ")
	if err != nil {
		return fmt.Errorf("write demo.json: %w", err)
	}
	tmp := f.info() + ".new"
	if err := errors.Join(os.WriteFile(tmp, append(b, '\n'), 0o600), os.Rename(tmp, f.info())); err != nil {
		return fmt.Errorf("write demo.json: %w", err)
	}
	return nil
}

func (f demoFiles) saveDatabaseURL(address string) error {
	if err := os.WriteFile(f.database(), []byte(address), 0o600); err != nil {
		return fmt.Errorf("keep the database's address: %w", err)
	}
	return nil
}

func (f demoFiles) databaseURL() (string, error) {
	b, err := os.ReadFile(f.database())
	if err != nil {
		return "", fmt.Errorf("read the database's address: %w", err)
	}
	return string(b), nil
}
