package config_test

import (
	"strings"
	"testing"

	"oncemore/internal/config"
)

const withHeaders = `urls: {api: {base: "http://api.internal:8080/", headers: {Authorization: {value_env: API_AUTHORIZATION}}}}`

func TestBasesWithHeaders(t *testing.T) {
	t.Setenv("API_AUTHORIZATION", "Bearer s3cret")
	c, err := config.Parse("c.yaml", []byte(strings.Replace(full, `urls: {api: "http://api.internal:8080/"}`, withHeaders, 1)))
	if err != nil {
		t.Fatal(err)
	}
	value, err := c.URLHeaders["api"]["Authorization"].Value()
	if err != nil || value != "Bearer s3cret" || c.URLs["api"] != "http://api.internal:8080" {
		t.Errorf("base %q, header %q, %v", c.URLs["api"], value, err)
	}
	for with, want := range map[string]string{
		`{value: secret}`:      "secrets are not written here",
		`{}`:                   "needs value_env or value_file",
		`text`:                 "has to be a mapping",
		`{value_env: A, x: 1}`: "x",
	} {
		text := strings.Replace(full, `urls: {api: "http://api.internal:8080/"}`, strings.Replace(withHeaders, "{value_env: API_AUTHORIZATION}", with, 1), 1)
		if _, err := config.Parse("c.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", with, err)
		}
	}
	own := strings.Replace(withHeaders, "Authorization", "Idempotency-Key", 1)
	if _, err := config.Parse("c.yaml", []byte(strings.Replace(full, `urls: {api: "http://api.internal:8080/"}`, own, 1))); err == nil || !strings.Contains(err.Error(), "written by the console itself") {
		t.Errorf("a header of ours: %v", err)
	}
}

// Compensations write by a credential of their own, and by no other.
func TestCompensationsHaveTheirOwnCredential(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("c.yaml", []byte(full))
	if err != nil || c.Connection("shop").Repairs.Set() {
		t.Fatalf("without a word in the file they may write: %v", err)
	}
	c, err = config.Parse("c.yaml", []byte(strings.Replace(full, "writer_url_env: SHOP_WRITER", "writer_url_env: SHOP_WRITER, compensation_url_env: SHOP_REPAIRS", 1)))
	if err != nil || c.Connection("shop").Repairs.Env != "SHOP_REPAIRS" {
		t.Errorf("%v", err)
	}
}
