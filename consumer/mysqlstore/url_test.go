package mysqlstore_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"oncemore/consumer/mysqlstore"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	cfg, err := mysqlstore.ParseURL("mysql://shop:p%40ss%2Fword@db.internal/ledger?tls=skip-verify&timeout=3s&readTimeout=1m&maxAllowedPacket=1048576")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.User != "shop" || cfg.Passwd != "p@ss/word" || cfg.Addr != "db.internal:3306" || cfg.DBName != "ledger" || cfg.Net != "tcp" {
		t.Errorf("%+v", cfg)
	}
	if cfg.TLSConfig != "skip-verify" || cfg.Timeout != 3*time.Second || cfg.ReadTimeout != time.Minute || cfg.MaxAllowedPacket != 1<<20 {
		t.Errorf("%+v", cfg)
	}
	if cfg, err = mysqlstore.ParseURL("mysql://shop@/ledger?socket=/run/mysqld.sock"); err != nil || cfg.Net != "unix" || cfg.Addr != "/run/mysqld.sock" {
		t.Errorf("socket: %+v, %v", cfg, err)
	}
	if cfg, err = mysqlstore.ParseURL("mysql://shop@[::1]:3307/ledger"); err != nil || cfg.Addr != "[::1]:3307" {
		t.Errorf("port: %+v, %v", cfg, err)
	}
}

func TestParseURLSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		"postgres://u:secret@h/db":                                      "has to be mysql://",
		"u:secret@tcp(h:3306)/db":                                       "has to be mysql://",
		"mysql://h:3306/db":                                             "has to be mysql://",
		"mysql://u:secret@h":                                            "name of the database",
		"mysql://u:secret@h/a/b":                                        "name of the database",
		"mysql://u:secret@/db":                                          "has to be mysql://",
		"mysql://u:sec#ret@h/db":                                        "it is no URL",
		"mysql://u:secret@h/db?multiStatements=true":                    "option multiStatements is not taken",
		"mysql://u:secret@h/db?sql_mode=''":                             "option sql_mode is not taken",
		"mysql://u:secret@h/db?clientFoundRows=true":                    "option clientFoundRows is not taken: known are ca, maxAllowedPacket",
		"mysql://u:secret@h/db?tls=maybe":                               "option tls: has to be true",
		"mysql://u:secret@h/db?timeout=3":                               `option timeout: "3" is no duration`,
		"mysql://u:secret@h/db?ca=" + file:                              "no certificate in",
		"mysql://u:secret@h/db?ca=" + file + ".missing":                 "no such file",
		"mysql://u:secret@h/db?maxAllowedPacket=1000000000000000000000": "option maxAllowedPacket",
	} {
		_, err := mysqlstore.ParseURL(address)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", address, err, want)
		} else if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "sec#ret") {
			t.Errorf("the error holds the password: %v", err)
		}
	}
}

// What a reader's credential may do does not matter: its sessions refuse to write.
func TestReaderRefusesToWrite(t *testing.T) {
	t.Parallel()
	db := prepared(t)
	reader, err := mysqlstore.OpenPool(db.cfg, mysqlstore.PoolOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close() })
	if _, err := reader.ExecContext(t.Context(), "INSERT INTO counter VALUES ('a', 1)"); err == nil || !strings.Contains(err.Error(), "1792") {
		t.Errorf("a write: %v", err)
	}
	var now time.Time
	var zone string
	if err := reader.QueryRowContext(t.Context(), "SELECT NOW(6), @@time_zone").Scan(&now, &zone); err != nil || zone != "+00:00" || now.Location() != time.UTC {
		t.Errorf("now %v in %s: %v", now, zone, err)
	}
	writer, err := mysqlstore.OpenPool(db.cfg, mysqlstore.PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { writer.Close() })
	if _, err := writer.ExecContext(t.Context(), "INSERT INTO counter VALUES ('a', 1)"); err != nil {
		t.Error(err)
	}
}
