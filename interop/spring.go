// Package interop sets Oncemore beside applications of other frameworks, which
// know nothing of it.
package interop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Jar is where make builds the Spring application, from the root of the checkout.
const Jar = "interop/spring-consumer/target/spring-consumer.jar"

// Spring says how the Spring application runs.
type Spring struct {
	Jar         string
	Kafka       string // host:port
	Postgres    string // address of the database with its schema.sql
	Topic       string
	Group       string
	Rabbit      string        // address of RabbitMQ, for Queue
	Queue       string        // queue of RabbitMQ that is read instead of topics; "": none
	Promo       string        // topic with non-blocking retries; "": none
	Concurrency int           // consumers, at most one a partition; 0 is 1
	Retry       time.Duration // first pause; 0 is the application's default
	Expect      int           // end after so many records; 0: never
}

// Command is the application as a process that ctx ends.
func (s Spring) Command(ctx context.Context) (*exec.Cmd, error) {
	if _, err := os.Stat(s.Jar); err != nil {
		return nil, fmt.Errorf("the Spring application is not built: %w", err)
	}
	database, err := s.datasource()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "java", "-jar", s.Jar)
	cmd.Env = append(os.Environ(), "BOOTSTRAP="+s.Kafka, "TOPIC="+s.Topic, "GROUP="+s.Group,
		"CONCURRENCY="+strconv.Itoa(max(s.Concurrency, 1)), "EXPECT="+strconv.Itoa(s.Expect))
	if s.Promo != "" {
		cmd.Env = append(cmd.Env, "PROMO="+s.Promo)
	}
	if s.Retry > 0 {
		cmd.Env = append(cmd.Env, "RETRY="+strconv.FormatInt(s.Retry.Milliseconds(), 10))
	}
	if s.Queue != "" {
		cmd.Env = append(cmd.Env, "KAFKA=false", "QUEUE="+s.Queue, "SPRING_RABBITMQ_ADDRESSES="+strings.TrimSuffix(s.Rabbit, "/"))
	}
	cmd.Env = append(cmd.Env, database...)
	return cmd, nil
}

// datasource is the address as Java wants it: user and password apart.
func (s Spring) datasource() ([]string, error) {
	u, err := url.Parse(s.Postgres)
	if err != nil {
		return nil, errors.New("the address of PostgreSQL is not a URL") // its text has a password
	}
	host := u.Host
	if u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), "5432")
	}
	password, _ := u.User.Password()
	return []string{
		"SPRING_DATASOURCE_URL=jdbc:postgresql://" + host + u.EscapedPath(),
		"SPRING_DATASOURCE_USERNAME=" + u.User.Username(), "SPRING_DATASOURCE_PASSWORD=" + password,
	}, nil
}
