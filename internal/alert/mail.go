package alert

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"net"

	"github.com/wneessen/go-mail"
)

// Mail is the server that takes e-mail, and who gets it.
type Mail struct {
	Server   string                 // host:port
	TLS      string                 // starttls (required) | tls | none
	User     func() (string, error) // nil: without signing in
	Password func() (string, error)
	From     string
	To       []string
}

// send hands the message over; the server's acceptance counts.
func (s *Mail) send(ctx context.Context, m Message) error {
	msg := mail.NewMsg()
	if err := msg.From(s.From); err != nil {
		return fmt.Errorf("sender: %w", err)
	}
	if err := msg.To(s.To...); err != nil {
		return fmt.Errorf("receiver: %w", err)
	}
	msg.Subject(oneLine(m.Title, 200))
	msg.SetDate()
	msg.SetMessageID()
	msg.SetGenHeader("Auto-Submitted", "auto-generated")
	msg.SetBodyString(mail.TypeTextPlain, m.plain())
	client, err := s.client()
	if err != nil {
		return err
	}
	return client.DialAndSendWithContext(ctx, msg)
}

func (s *Mail) client() (*mail.Client, error) {
	host, port, err := net.SplitHostPort(s.Server)
	if err != nil {
		return nil, fmt.Errorf("mail server: %w", err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, fmt.Errorf("mail server's port: %w", err)
	}
	opts := []mail.Option{mail.WithPort(number), mail.WithTimeout(sendTime)}
	switch s.TLS {
	case "tls":
		opts = append(opts, mail.WithSSL())
	case "none":
		opts = append(opts, mail.WithTLSPolicy(mail.NoTLS))
	default:
		opts = append(opts, mail.WithTLSPolicy(mail.TLSMandatory))
	}
	if s.User != nil {
		user, err := s.User()
		if err != nil {
			return nil, err
		}
		password, err := s.Password()
		if err != nil {
			return nil, err
		}
		opts = append(opts, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(user), mail.WithPassword(password))
	}
	return mail.NewClient(strings.Trim(host, "[]"), opts...)
}
