package main

import "testing"

func TestPoolSizeIsOursUnlessTheAddressSaysOne(t *testing.T) {
	for url, want := range map[string]int32{
		"postgres://console@127.0.0.1/console":                                  poolConns,
		"postgres://console@127.0.0.1/console?pool_max_conns=5":                 5,
		"host=127.0.0.1 dbname=console user=console":                            poolConns,
		"host=127.0.0.1 dbname=console user=console pool_max_conns=40":          40,
		"postgres://console@127.0.0.1/console?sslmode=disable&pool_max_conns=2": 2,
	} {
		settings, err := poolSettings(url)
		if err != nil || settings.MaxConns != want {
			t.Errorf("%s: %d connections, want %d (%v)", url, settings.MaxConns, want, err)
		}
	}
}
