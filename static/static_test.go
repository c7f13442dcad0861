package static

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestVendoredFilesAreWhatTheyWereCopiedFrom(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("vendor/VENDOR.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\S+) \| .* \| ([0-9a-f]{64}) \|$`).FindAllStringSubmatch(string(list), -1) {
		listed[m[1]] = m[2]
	}
	names, err := filepath.Glob("vendor/*.*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range names {
		name := filepath.Base(path)
		if name == "VENDOR.md" {
			continue
		}
		body, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(body)
		if got := hex.EncodeToString(sum[:]); got != listed[name] {
			t.Errorf("%s has SHA-256 %s, VENDOR.md says %q", name, got, listed[name])
		}
		delete(listed, name)
	}
	for name := range listed {
		t.Errorf("VENDOR.md lists %s, which is not there", name)
	}
}

func TestTheSpriteHoldsTheIconsThatAreUsed(t *testing.T) {
	t.Parallel()
	sprite, err := files.ReadFile("icons.svg")
	if err != nil {
		t.Fatal(err)
	}
	sources := pageSources(t)
	symbols := map[string]bool{}
	for _, m := range regexp.MustCompile(`<symbol id="([a-z0-9-]+)"`).FindAllStringSubmatch(string(sprite), -1) {
		symbols[m[1]] = true
		if !strings.Contains(sources, `"`+m[1]+`"`) && !strings.Contains(sources, "#"+m[1]) {
			t.Errorf("icon %s is in the sprite, but no page uses it", m[1])
		}
	}
	for _, m := range regexp.MustCompile(`(?:Icon\(|[iI]con: |iconOf\()"([a-z0-9-]+)"`).FindAllStringSubmatch(sources, -1) {
		if !symbols[m[1]] {
			t.Errorf("icon %s is used, but is not in the sprite", m[1])
		}
	}
	for _, m := range regexp.MustCompile(`\{"(?:go|noop|ask|bad|hold|mute)", "([a-z0-9-]+)"\}|\{"([a-z0-9-]+)", "(?:go|noop|ask|bad|hold|mute)"\}`).FindAllStringSubmatch(sources, -1) {
		if name := m[1] + m[2]; !symbols[name] {
			t.Errorf("icon %s is used in a table of looks, but is not in the sprite", name)
		}
	}
}

// pageSources is the text of everything that may name an icon.
func pageSources(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range []string{"../views", "../web", "."} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_templ.go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			if slices.Contains([]string{".go", ".templ", ".js"}, filepath.Ext(path)) && !strings.Contains(path, "testdata") && !strings.Contains(path, "vendor") {
				b, err := os.ReadFile(path)
				all.Write(b)
				return err
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

func TestScriptsAndStylesAskForNothingElsewhere(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"app.css", "app.js", "theme.js", "icons.svg", "favicon.svg"} {
		body, err := files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(body), "http://www.w3.org/2000/svg", "")
		for _, bad := range []string{"http://", "https://", "@import", "eval(", "new Function", "innerHTML", " style="} {
			if strings.Contains(text, bad) {
				t.Errorf("%s holds %q", name, bad)
			}
		}
	}
}

func get(t *testing.T, path string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	if len(header) == 2 {
		r.Header.Set(header[0], header[1])
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w.Result()
}

func TestFilesAreKeptForEverUnderTheirHash(t *testing.T) {
	t.Parallel()
	resp := get(t, URL("app.css"))
	if resp.StatusCode != http.StatusOK || !strings.Contains(resp.Header.Get("Cache-Control"), "immutable") {
		t.Errorf("%d, Cache-Control %q", resp.StatusCode, resp.Header.Get("Cache-Control"))
	}
	if ct := resp.Header.Get("Content-Type"); ct != "text/css; charset=utf-8" {
		t.Errorf("Content-Type %q", ct)
	}
	old := get(t, Prefix+"0123456789/app.css")
	if old.StatusCode != http.StatusOK || old.Header.Get("Cache-Control") != "no-cache" {
		t.Errorf("under an old hash: %d, Cache-Control %q", old.StatusCode, old.Header.Get("Cache-Control"))
	}
	for _, path := range []string{Prefix, Prefix + "x", URL("app.css") + "x", Prefix + "0123456789/static.go", Prefix + "0123456789/vendor/VENDOR.md", Prefix + "0123456789/../static.go"} {
		if resp := get(t, path); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s answers %d", path, resp.StatusCode)
		}
	}
}

func TestFilesAreSentCompressed(t *testing.T) {
	t.Parallel()
	plain, err := io.ReadAll(get(t, URL("vendor/tabler.min.css")).Body)
	if err != nil {
		t.Fatal(err)
	}
	resp := get(t, URL("vendor/tabler.min.css"), "Accept-Encoding", "br, gzip")
	if resp.Header.Get("Content-Encoding") != "gzip" || resp.Header.Get("Vary") != "Accept-Encoding" {
		t.Fatalf("Content-Encoding %q, Vary %q", resp.Header.Get("Content-Encoding"), resp.Header.Get("Vary"))
	}
	z, err := gzip.NewReader(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	unpacked, err := io.ReadAll(z)
	if err != nil || string(unpacked) != string(plain) {
		t.Errorf("compressed and plain differ: %v", err)
	}
	if font := get(t, URL("vendor/inter-latin.woff2"), "Accept-Encoding", "gzip"); font.Header.Get("Content-Encoding") != "" || font.Header.Get("Content-Type") != "font/woff2" {
		t.Errorf("font: %v", font.Header)
	}
}

func TestAnUnknownFileIsABugInAPage(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("URL of a file that is not embedded did not panic")
		}
	}()
	URL("nowhere.css")
}
