package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

type serveCmd struct {
	configFlag
	Roles []string `help:"Parts that this process runs: web, drain, consume, jobs." default:"web,drain,consume,jobs" placeholder:"ROLE"`
}

// Run serves until a signal ends it.
func (c serveCmd) Run(e *edge) error {
	r, err := parseRoles(c.Roles)
	if err != nil {
		return err
	}
	flush, err := startTraces(e.ctx, e.log)
	if err != nil {
		return err
	}
	defer flush()
	for {
		if err := c.serve(e, r); !errors.Is(err, errRestart) {
			return err
		}
		e.log.Info("the config was written: starting again", "file", c.Config)
	}
}

// errRestart ends a run that is followed by another one, with a config that was
// written meanwhile.
var errRestart = errors.New("the config was written")

// serve runs once. Error: errRestart.
func (c serveCmd) serve(e *edge, r roles) error {
	a, err := c.open(e)
	if err != nil {
		return err
	}
	defer a.close()
	var ln net.Listener
	if r.Web {
		if ln, err = listen(a.conf.Listen, "change listen in "+a.conf.File); err != nil {
			return err
		}
		e.log.Info("console", "address", "http://"+ln.Addr().String(), "version", versionText())
	}
	ctx, stop := context.WithCancelCause(e.ctx)
	defer stop(nil)
	first := &setup{app: a, restart: func() { stop(errRestart) }}
	if err := a.serve(ctx, r, ln, extras{setup: first}); err != nil {
		return err
	}
	if errors.Is(context.Cause(ctx), errRestart) {
		return errRestart
	}
	return nil
}

func parseRoles(names []string) (roles, error) {
	known := []string{"web", "drain", "consume", "jobs"}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return roles{}, fmt.Errorf("there is no role %q: choose of %s", name, strings.Join(known, ", "))
		}
	}
	has := func(name string) bool { return slices.Contains(names, name) }
	return roles{Web: has("web"), Drain: has("drain"), Consume: has("consume"), Jobs: has("jobs")}, nil
}

// listen takes the address, or says what to do instead.
func listen(addr, instead string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w; %s", addr, cause(err), instead)
	}
	return ln, nil
}

// cause is the innermost error: "address already in use" without its wrapping.
// Of several joined ones it is the last's: a driver that tries with and without
// encryption ends with what the server really said.
func cause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if joined, ok := err.(interface{ Unwrap() []error }); ok && len(joined.Unwrap()) > 0 {
			inner = joined.Unwrap()[len(joined.Unwrap())-1]
		}
		if inner == nil {
			return err
		}
		err = inner
	}
}
