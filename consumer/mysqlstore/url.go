package mysqlstore

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// ParseURL reads mysql://user:password@host:port/database?option=value. The port
// is 3306 where none is given. The options, all of them about the way there:
//
//   - tls: true, false, preferred, or skip-verify (encrypted, but to whom?)
//   - ca: a PEM file with the authorities to believe; implies tls=true
//   - timeout, readTimeout, writeTimeout: of connecting, of one read, of one write
//   - maxAllowedPacket: bytes
//   - socket: a Unix socket instead of host and port
//
// Any other option is an error: what a session is like decides whether an effect
// happens once, so Open and OpenPool set it themselves. Errors never hold the password.
func ParseURL(address string) (*mysql.Config, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("address of the database: %w", withoutAddress(err))
	}
	cfg := mysql.NewConfig()
	cfg.User, cfg.DBName = u.User.Username(), strings.TrimPrefix(u.Path, "/")
	cfg.Passwd, _ = u.User.Password()
	cfg.Net, cfg.Addr = "tcp", net.JoinHostPort(u.Hostname(), u.Port())
	if u.Port() == "" {
		cfg.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	options, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("options of the database's address: %w", err)
	}
	if err := setOptions(cfg, u.Hostname(), options); err != nil {
		return nil, fmt.Errorf("address of the database: %w", err)
	}
	switch {
	case u.Scheme != "mysql", u.Hostname() == "" && cfg.Net == "tcp", cfg.User == "":
		return nil, errors.New("the database's address has to be mysql://user:password@host:port/database")
	case cfg.DBName == "" || strings.Contains(cfg.DBName, "/"):
		return nil, errors.New("the database's address has to end with the name of the database: mysql://user:password@host:port/database")
	}
	return cfg, nil
}

// withoutAddress drops what url.Parse repeats of its input: it holds the password.
func withoutAddress(err error) error {
	var parsing *url.Error
	if !errors.As(err, &parsing) {
		return err
	}
	if strings.Contains(parsing.Err.Error(), "port") {
		return errors.New("it is no URL: a password with one of : / ? # [ ] @ % has to be percent-encoded, and a port is a number")
	}
	return errors.New("it is no URL, or its password is not percent-encoded")
}

// urlOptions are what an address may say besides where the database is.
var urlOptions = map[string]func(cfg *mysql.Config, host, value string) error{
	"tls": func(cfg *mysql.Config, _, value string) error {
		if !slices.Contains([]string{"true", "false", "preferred", "skip-verify"}, value) {
			return errors.New("has to be true, false, preferred or skip-verify")
		}
		if cfg.TLS == nil { // ca has said more
			cfg.TLSConfig = value
		}
		return nil
	},
	"ca":           authorities,
	"timeout":      func(cfg *mysql.Config, _, value string) error { return readTime(&cfg.Timeout, value) },
	"readTimeout":  func(cfg *mysql.Config, _, value string) error { return readTime(&cfg.ReadTimeout, value) },
	"writeTimeout": func(cfg *mysql.Config, _, value string) error { return readTime(&cfg.WriteTimeout, value) },
	"maxAllowedPacket": func(cfg *mysql.Config, _, value string) (err error) {
		cfg.MaxAllowedPacket, err = strconv.Atoi(value)
		return err
	},
	"socket": func(cfg *mysql.Config, _, value string) error {
		cfg.Net, cfg.Addr = "unix", value
		return nil
	},
}

func setOptions(cfg *mysql.Config, host string, given url.Values) error {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		set, known := urlOptions[name]
		if !known {
			return fmt.Errorf("option %s is not taken: known are %s, and sessions are set up by Oncemore itself", name,
				strings.Join(slices.Sorted(maps.Keys(urlOptions)), ", "))
		}
		if err := set(cfg, host, given.Get(name)); err != nil {
			return fmt.Errorf("option %s: %w", name, err)
		}
	}
	return nil
}

func authorities(cfg *mysql.Config, host, file string) error {
	pem, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, RootCAs: x509.NewCertPool()}
	if !cfg.TLS.RootCAs.AppendCertsFromPEM(pem) {
		return fmt.Errorf("no certificate in %s", file)
	}
	return nil
}

func readTime(into *time.Duration, value string) error {
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 {
		return fmt.Errorf("%q is no duration such as 10s", value)
	}
	*into = d
	return nil
}
