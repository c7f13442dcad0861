package config

import (
	"fmt"
	"os"
	"strings"
)

// Secret is a value that the file only names: an environment variable or a file.
// Given is for callers that build a Config themselves, such as the demo.
type Secret struct {
	Pos   Pos
	Env   string
	File  string
	Given string
}

// Set reports whether the config names the secret at all.
func (s Secret) Set() bool { return s.Env != "" || s.File != "" || s.Given != "" }

// Value reads the secret. An error says which variable or file is missing.
func (s Secret) Value() (string, error) {
	switch {
	case s.Given != "":
		return s.Given, nil
	case s.Env != "":
		if v := os.Getenv(s.Env); v != "" {
			return v, nil
		}
		return "", fmt.Errorf("%s: the environment variable %s is not set", s.Pos, s.Env)
	case s.File != "":
		b, err := os.ReadFile(s.File)
		if err != nil {
			return "", fmt.Errorf("%s: %w", s.Pos, err)
		}
		return strings.TrimRight(string(b), "\r\n"), nil
	}
	return "", fmt.Errorf("%s: is not set", s.Pos)
}
