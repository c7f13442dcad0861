package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"oncemore/dlq"
	"oncemore/internal/config"
	"oncemore/internal/fleet"
)

// openClusters makes the clients of all clusters, by name. They connect when they
// are first used.
func openClusters(conf *config.Config) (map[string]*dlq.Cluster, error) {
	made := make(map[string]*dlq.Cluster, len(conf.Clusters))
	for _, c := range conf.Clusters {
		cluster, err := openCluster(c, conf.Sources)
		if err == nil {
			made[c.Name] = cluster
		}
		if err != nil {
			for _, open := range made {
				open.Close()
			}
			return nil, fmt.Errorf("cluster %s: %w", c.Name, err)
		}
	}
	return made, nil
}

func openCluster(c config.Cluster, sources []config.Source) (*dlq.Cluster, error) {
	if c.Rabbit != nil {
		opts, err := rabbitOptions(c.Rabbit)
		if err != nil {
			return nil, err
		}
		for _, s := range sources {
			if s.Cluster == c.Name && s.KeepExpiration != nil {
				opts.Expirations = append(opts.Expirations, dlq.Expiration{Source: s.Pattern, Keep: *s.KeepExpiration})
			}
		}
		return dlq.NewRabbitCluster(c.Name, opts)
	}
	opts, err := kafkaOptions(c.Kafka)
	if err != nil {
		return nil, err
	}
	return dlq.NewCluster(c.Name, opts...)
}

func rabbitOptions(r *config.Rabbit) (opts dlq.RabbitOptions, err error) {
	url, err := r.URL.Value()
	if err != nil {
		return opts, err
	}
	opts.URLs, opts.KeepExpiration = []string{url}, r.KeepExpiration
	if r.ManagementURL.Set() {
		opts.ManagementURL, err = r.ManagementURL.Value()
	}
	return opts, err
}

// kafkaOptions are seeds, encryption and sign-in; what each client does besides
// is its own affair.
func kafkaOptions(k *config.Kafka) ([]kgo.Opt, error) {
	opts := []kgo.Opt{kgo.SeedBrokers(k.Brokers...), kgo.ClientID("oncemore")}
	if k.TLS != nil {
		conf, err := tlsConfig(k.TLS)
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(conf))
	}
	if k.SASL != nil {
		mechanism, err := saslMechanism(k.SASL)
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.SASL(mechanism))
	}
	return opts, nil
}

func tlsConfig(t *config.TLS) (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("tls.ca_file: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls.ca_file: no certificate in %s", t.CAFile)
		}
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("tls.cert_file: %w", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}

func saslMechanism(s *config.SASL) (sasl.Mechanism, error) {
	user, err1 := s.User.Value()
	password, err2 := s.Password.Value()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	switch s.Mechanism {
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism(), nil
	default:
		return plain.Auth{User: user, Pass: password}.AsMechanism(), nil
	}
}

// admins are the brokers of Kafka, which the Consumers page asks.
func (a *app) admins() map[string]fleet.Admin {
	all := make(map[string]fleet.Admin, len(a.clusters))
	for name, c := range a.clusters {
		if !c.IsRabbit() {
			all[name] = c.Admin
		}
	}
	return all
}
