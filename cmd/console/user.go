package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"oncemore/internal/access"
	"oncemore/web"
)

type userCmd struct {
	Add     userAddCmd     `cmd:"" help:"Add an account. The password is read from standard input."`
	Passwd  userPasswdCmd  `cmd:"" help:"Set a password. It is read from standard input."`
	Role    userRoleCmd    `cmd:"" help:"Change an account's role."`
	Disable userDisableCmd `cmd:"" help:"Let nobody sign in with an account, and end its sessions and tokens."`
	Enable  userEnableCmd  `cmd:"" help:"Let a disabled account sign in again."`
	List    userListCmd    `cmd:"" help:"List the accounts."`
}

// named are the flags of commands on one account.
type named struct {
	configFlag
	Name string `arg:"" help:"Account."`
}

func (c named) accounts(e *edge, do func(*web.Accounts) error) error {
	pool, err := c.database(e)
	if err != nil {
		return err
	}
	defer pool.Close()
	return do(web.NewAccounts(pool))
}

type userAddCmd struct {
	named
	Role string `help:"viewer, operator, reviewer, approver or admin." default:"viewer" enum:"viewer,operator,reviewer,approver,admin"`
}

// Run adds the account.
func (c userAddCmd) Run(e *edge) error {
	password, err := readPassword()
	if err != nil {
		return err
	}
	return c.accounts(e, func(accounts *web.Accounts) error {
		made, err := accounts.Create(e.ctx, operator(""), c.Name, password, access.Role(c.Role))
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(e.out, "%s may sign in as %s\n", made.Name, made.Role)
		return err
	})
}

type userPasswdCmd struct{ named }

// Run sets the password.
func (c userPasswdCmd) Run(e *edge) error {
	password, err := readPassword()
	if err != nil {
		return err
	}
	return c.accounts(e, func(accounts *web.Accounts) error {
		return accounts.SetPassword(e.ctx, operator(""), c.Name, password)
	})
}

type userRoleCmd struct {
	named
	Role string `arg:"" help:"viewer, operator, reviewer, approver or admin." enum:"viewer,operator,reviewer,approver,admin"`
}

// Run changes the role.
func (c userRoleCmd) Run(e *edge) error {
	return c.accounts(e, func(accounts *web.Accounts) error {
		return accounts.SetRole(e.ctx, operator(""), c.Name, access.Role(c.Role))
	})
}

type userDisableCmd struct{ named }

// Run disables the account.
func (c userDisableCmd) Run(e *edge) error {
	return c.accounts(e, func(accounts *web.Accounts) error { return accounts.Disable(e.ctx, operator(""), c.Name) })
}

type userEnableCmd struct{ named }

// Run enables the account.
func (c userEnableCmd) Run(e *edge) error {
	return c.accounts(e, func(accounts *web.Accounts) error { return accounts.Enable(e.ctx, operator(""), c.Name) })
}

type userListCmd struct{ configFlag }

// Run prints a table.
func (c userListCmd) Run(e *edge) error {
	return named{configFlag: c.configFlag}.accounts(e, func(accounts *web.Accounts) error {
		all, err := accounts.List(e.ctx, operator(""))
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(e.out, 0, 4, 2, ' ', 0)
		fmt.Fprintln(w, "NAME\tROLE\tSTATE\tLAST SIGN-IN")
		for _, u := range all {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", u.Name, u.Role, userState(u), when(u.LastLoginAt))
		}
		return w.Flush()
	})
}

func userState(u web.Account) string {
	if u.DisabledAt != nil {
		return "disabled"
	}
	return "active"
}

// when is a time for a table; "-" for none.
func when(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// readPassword takes the first line of standard input, so that no password
// stands in a process list or a shell's history.
func readPassword() (string, error) {
	if stat, err := os.Stdin.Stat(); err == nil && stat.Mode()&os.ModeCharDevice != 0 {
		fmt.Fprint(os.Stderr, "Password: ")
	}
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return "", fmt.Errorf("no password on standard input: %w", err)
	}
	return line, nil
}
