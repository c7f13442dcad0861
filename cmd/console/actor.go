package main

import (
	"os"
	"os/user"

	"oncemore/internal/access"
)

// operator is who works at the command line: whoever may read the config's
// secrets may do everything, and the audit names their account on the machine.
func operator(reason string) access.Actor {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname() // unknown: the audit names the account alone
	return access.Actor{User: name, Role: access.Admin, Via: "cli", From: host, Reason: reason}
}
