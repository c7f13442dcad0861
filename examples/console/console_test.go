// Package console_test keeps the example config readable by the code.
package console_test

import (
	"testing"

	"oncemore/consumer/effect"
	"oncemore/internal/config"
)

func TestExampleConfigIsSound(t *testing.T) {
	t.Parallel()
	c, err := config.Load("console.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, consumer := range c.Consumers {
		if consumer.HTTP == nil {
			_, err = effect.NewSQL(consumer.SQL, consumer.ExpectRows)
		} else {
			h := consumer.HTTP
			_, err = effect.NewHTTP(effect.HTTPConfig{
				Method: h.Method, Base: c.URLs[h.Base], Path: h.Path, Headers: h.Headers, Body: h.Body,
				Key: effect.KeyForm(h.IdempotencyKey), Accept202: h.Accept202, Timeout: h.Timeout,
			}, effect.HTTPOptions{})
		}
		if err != nil {
			t.Errorf("%s: %v", consumer.Group, err)
		}
	}
	if len(c.Consumers) != 2 {
		t.Errorf("%d consumers", len(c.Consumers))
	}
}
