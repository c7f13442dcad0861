package main

import (
	"fmt"

	"oncemore/dlq/payload"
	"oncemore/internal/config"
)

// openRegistries makes the clients of the clusters' schema registries, by
// cluster. They connect when they are first used.
func openRegistries(all []config.Cluster) (map[string]*payload.Registry, error) {
	made := map[string]*payload.Registry{}
	for _, c := range all {
		if c.SchemaRegistry == nil {
			continue
		}
		r, err := openRegistry(c.SchemaRegistry)
		if err != nil {
			return nil, fmt.Errorf("schema registry of cluster %s: %w", c.Name, err)
		}
		made[c.Name] = r
	}
	return made, nil
}

func openRegistry(r *config.SchemaRegistry) (*payload.Registry, error) {
	opts := payload.RegistryOptions{URLs: r.URLs, Timeout: r.Timeout}
	for secret, into := range map[*config.Secret]*string{&r.User: &opts.User, &r.Password: &opts.Password, &r.Token: &opts.Token} {
		if !secret.Set() {
			continue
		}
		value, err := secret.Value()
		if err != nil {
			return nil, err
		}
		*into = value
	}
	if r.TLS != nil {
		conf, err := tlsConfig(r.TLS)
		if err != nil {
			return nil, err
		}
		opts.TLS = conf
	}
	return payload.NewRegistry(opts)
}
