package testkit

import (
	"net"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// RabbitServer is a real broker.
type RabbitServer struct {
	URL        string // amqp://user:password@host:port/
	Management string // http://user:password@host:port
	ctl        string // command that runs rabbitmqctl; "" if the server is not ours to disturb
}

// Rabbit returns RabbitMQ 3 from ONCEMORE_RABBITMQ, an AMQP URL. The management
// API is at ONCEMORE_RABBITMQ_MANAGEMENT, by default on the next port, and
// ONCEMORE_RABBITMQ_CTL, where set, is a command that runs its rabbitmqctl, such as
// "scripts/services/rabbitmq ctl". Without a server the test is skipped, or fails
// under ONCEMORE_SERVICES=required.
func Rabbit(t testing.TB) RabbitServer { return rabbit(t, "ONCEMORE_RABBITMQ") }

// Rabbit4 returns RabbitMQ 4 from ONCEMORE_RABBITMQ4, as Rabbit does.
func Rabbit4(t testing.TB) RabbitServer { return rabbit(t, "ONCEMORE_RABBITMQ4") }

func rabbit(t testing.TB, name string) RabbitServer {
	t.Helper()
	s := RabbitServer{URL: os.Getenv(name), Management: os.Getenv(name + "_MANAGEMENT"), ctl: os.Getenv(name + "_CTL")}
	switch {
	case s.URL == "" && Required():
		t.Fatalf("ONCEMORE_SERVICES=required, but %s is not set: run make test", name)
	case s.URL == "":
		t.Skipf("needs a real RabbitMQ: set %s=amqp://user:password@host:port/, or run make test", name)
	case s.Management == "":
		s.Management = nextPort(t, s.URL)
	}
	return s
}

func nextPort(t testing.TB, amqpURL string) string {
	t.Helper()
	u, err := url.Parse(amqpURL)
	if err != nil {
		t.Fatalf("RabbitMQ's URL: %v", err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatalf("RabbitMQ's URL names no port, so its management API needs a URL of its own: %v", err)
	}
	u.Scheme, u.Host, u.Path = "http", net.JoinHostPort(u.Hostname(), strconv.Itoa(port+1)), ""
	return u.String()
}

// Ctl runs rabbitmqctl against the server. The test is skipped where that server
// may not be disturbed.
func (s RabbitServer) Ctl(t testing.TB, args ...string) string {
	t.Helper()
	if s.ctl == "" {
		t.Skip("disturbs a RabbitMQ of its own: set ONCEMORE_RABBITMQ_CTL and ONCEMORE_RABBITMQ4_CTL, or run make soak")
	}
	command := append(strings.Fields(s.ctl), args...)
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("rabbitmqctl %v: %v\n%s", args, err, out)
	}
	return string(out)
}
