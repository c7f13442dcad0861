// Package embedded brings up PostgreSQL and Kafka inside or beside this process,
// for the demo and for tests. Neither is meant for production.
package embedded

import "errors"

// TestPostgres starts a server for this test process and returns its address.
func TestPostgres() (string, error) {
	return "", errors.New("set ONCEMORE_POSTGRES_URL")
}
