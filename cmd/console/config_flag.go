package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/internal/config"
)

// configFlag is --config of the commands that work on a config.
type configFlag struct {
	Config string `help:"Config file." default:"console.yaml" env:"ONCEMORE_CONFIG" placeholder:"FILE"`
}

func (f configFlag) load() (*config.Config, error) {
	conf, err := config.Load(f.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no config file %s: name one with --config, or see it all with console demo", f.Config)
	}
	return conf, err
}

// open wires the whole console; the caller closes it.
func (f configFlag) open(e *edge) (*app, error) {
	conf, err := f.load()
	if err != nil {
		return nil, err
	}
	return openApp(e.ctx, conf, e.log)
}

// database connects to the console's own database only; the caller closes it.
func (f configFlag) database(e *edge) (*pgxpool.Pool, error) {
	conf, err := f.load()
	if err != nil {
		return nil, err
	}
	pool, err := openConsole(e.ctx, conf)
	if err != nil {
		return nil, err
	}
	if err := needMigrated(e.ctx, pool); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}
