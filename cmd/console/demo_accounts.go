package main

import (
	"crypto/rand"
	"errors"
	"fmt"

	"oncemore/internal/access"
	"oncemore/web"
)

// info makes one account and token per role, keeping those of the run before,
// and collects everything for demo.json.
func (d *demo) info() (demoInfo, error) {
	database, err := d.files.databaseURL()
	if err != nil {
		return demoInfo{}, err
	}
	info := demoInfo{URL: "http://" + d.ln.Addr().String(), Kafka: d.kafka.Addr, Database: database}
	accounts := web.NewAccounts(d.app.pool)
	tokens := web.NewTokens(d.app.pool, d.app.clock)
	for _, role := range access.Roles {
		a, err := d.demoAccount(accounts, tokens, role)
		if err != nil {
			return demoInfo{}, fmt.Errorf("account %s of the demo: %w", role, err)
		}
		info.Accounts = append(info.Accounts, a)
		if role == access.Admin {
			info.User, info.Password, info.Token = a.User, a.Password, a.Token
		}
	}
	return info, nil
}

func (d *demo) demoAccount(accounts *web.Accounts, tokens *web.Tokens, role access.Role) (demoAccount, error) {
	ctx, system := d.edge.ctx, access.System()
	a := d.last.account(string(role))
	a.Role = role
	fresh := a.Password == ""
	if fresh {
		a.Password = rand.Text()[:12]
	}
	_, err := accounts.Create(ctx, system, a.User, a.Password, role)
	switch {
	case errors.Is(err, web.ErrAccountExists) && fresh:
		err = accounts.SetPassword(ctx, system, a.User, a.Password)
	case errors.Is(err, web.ErrAccountExists):
		return a, nil // as the last run left it, token included
	}
	if err != nil {
		return a, err
	}
	a.Token, _, err = tokens.Create(ctx, system, web.NewToken{User: a.User, Name: "demo.json", Role: role})
	return a, err
}
