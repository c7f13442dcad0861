package main

import (
	"fmt"
	"strconv"
	"text/tabwriter"
	"time"

	"oncemore/internal/access"
	"oncemore/internal/strictyaml"
	"oncemore/web"
)

type tokenCmd struct {
	Create tokenCreateCmd `cmd:"" help:"Make a token and print it, once."`
	List   tokenListCmd   `cmd:"" help:"List a user's tokens."`
	Revoke tokenRevokeCmd `cmd:"" help:"End a token at once."`
}

func (f configFlag) tokens(e *edge, do func(*web.Tokens) error) error {
	pool, err := f.database(e)
	if err != nil {
		return err
	}
	defer pool.Close()
	return do(web.NewTokens(pool, time.Now))
}

type tokenCreateCmd struct {
	configFlag
	User string `arg:"" help:"Account that the token acts as."`
	Name string `arg:"" help:"What it is for."`
	Role string `help:"At most the account's." default:"viewer" enum:"viewer,operator,reviewer,approver,admin"`
	For  string `help:"How long it lives, such as 90d; for ever if absent." placeholder:"DURATION"`
}

// Run prints the secret alone, so that a script can take it.
func (c tokenCreateCmd) Run(e *edge) error {
	want := web.NewToken{User: c.User, Name: c.Name, Role: access.Role(c.Role)}
	if c.For != "" {
		d, err := strictyaml.ParseDuration(c.For)
		if err != nil {
			return fmt.Errorf("--for: %w", err)
		}
		want.ExpiresAt = time.Now().Add(d)
	}
	return c.tokens(e, func(tokens *web.Tokens) error {
		secret, _, err := tokens.Create(e.ctx, operator(""), want)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(e.out, secret)
		return err
	})
}

type tokenListCmd struct {
	configFlag
	User string `arg:"" help:"Account."`
}

// Run prints a table.
func (c tokenListCmd) Run(e *edge) error {
	return c.tokens(e, func(tokens *web.Tokens) error {
		all, err := tokens.List(e.ctx, operator(""), c.User)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(e.out, 0, 4, 2, ' ', 0)
		fmt.Fprintln(w, "ID\tNAME\tROLE\tCREATED\tEXPIRES\tREVOKED\tLAST USED")
		for _, t := range all {
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", t.ID, strconv.Quote(t.Name), t.Role,
				when(&t.CreatedAt), when(t.ExpiresAt), when(t.RevokedAt), when(t.LastUsedAt))
		}
		return w.Flush()
	})
}

type tokenRevokeCmd struct {
	configFlag
	ID int64 `arg:"" help:"Number of the token, see token list."`
}

// Run revokes the token.
func (c tokenRevokeCmd) Run(e *edge) error {
	return c.tokens(e, func(tokens *web.Tokens) error { return tokens.Revoke(e.ctx, operator(""), c.ID) })
}
