package main

import (
	"crypto/rand"
	"errors"
	"fmt"

	"oncemore/internal/access"
	"oncemore/web"
)

// info makes the accounts and a token for each, keeping those of the run before,
// and collects everything for demo.json.
func (d *demo) info() (demoInfo, error) {
	database, err := d.files.databaseURL()
	if err != nil {
		return demoInfo{}, err
	}
	info := demoInfo{URL: "http://" + d.ln.Addr().String(), Kafka: d.kafka.Addr, Database: database}
	accounts := web.NewAccounts(d.app.pool)
	tokens := web.NewTokens(d.app.pool, d.app.clock)
	for _, user := range demoUsers() {
		a, err := d.demoAccount(accounts, tokens, user)
		if err != nil {
			return demoInfo{}, fmt.Errorf("account %s of the demo: %w", user.User, err)
		}
		info.Accounts = append(info.Accounts, a)
		if user.Role == access.Admin {
			info.User, info.Password, info.Token = a.User, a.Password, a.Token
		}
	}
	return info, nil
}

// demoUsers are one person per role, and a second reviewer: who prepares a run
// does not sign it.
func demoUsers() []demoAccount {
	var users []demoAccount
	for _, role := range access.Roles {
		if role == access.Reviewer {
			users = append(users, demoAccount{User: demoPreparer, Role: role})
		}
		users = append(users, demoAccount{User: string(role), Role: role})
	}
	return users
}

func (d *demo) demoAccount(accounts *web.Accounts, tokens *web.Tokens, user demoAccount) (demoAccount, error) {
	ctx, system, role := d.edge.ctx, access.System(), user.Role
	a := d.last.account(user.User)
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
