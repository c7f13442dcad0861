// Package static holds what the browser loads: style sheets, scripts, fonts and
// icons, embedded in the binary and served from this origin only.
package static

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
)

//go:embed app.css app.js theme.js icons.svg favicon.svg vendor/*.css vendor/*.js vendor/*.woff2
var files embed.FS

// Prefix is where Handler is mounted.
const Prefix = "/static/"

type asset struct {
	body, gzipped []byte // gzipped is nil where it would not help
	contentType   string
}

type tree struct {
	hash   string
	assets map[string]asset
}

// load reads and hashes the embedded files once. One hash names them all, so
// that relative addresses inside style sheets stay valid.
var load = sync.OnceValue(func() tree {
	t := tree{assets: map[string]asset{}}
	sum := sha256.New()
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%s %d\n", name, len(body))
		sum.Write(body)
		t.assets[name] = newAsset(name, body)
		return nil
	})
	if err != nil {
		panic(fmt.Sprintf("static: embedded files: %v", err))
	}
	t.hash = hex.EncodeToString(sum.Sum(nil))[:10]
	return t
})

func newAsset(name string, body []byte) asset {
	a := asset{body: body, contentType: contentType(name)}
	if strings.HasSuffix(name, ".woff2") {
		return a // compressed already
	}
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	w.Write(body) // a bytes.Buffer does not fail
	w.Close()
	a.gzipped = b.Bytes()
	return a
}

func contentType(name string) string {
	switch path.Ext(name) {
	case ".woff2":
		return "font/woff2"
	case ".js":
		return "text/javascript; charset=utf-8"
	}
	return mime.TypeByExtension(path.Ext(name))
}

// URL is the address of the named file, such as "app.css". It changes with
// every change of any file, so browsers may keep what they have for ever. It
// panics on a name that is not embedded: that is a bug in a page.
func URL(name string) string {
	t := load()
	if _, ok := t.assets[name]; !ok {
		panic("static: no file " + name)
	}
	return Prefix + t.hash + "/" + name
}

// Handler serves the files under Prefix. An address with an old hash is served
// too, but is not kept by the browser.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t := load()
		hash, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, Prefix), "/")
		a, ok := t.assets[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", a.contentType)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", cacheControl(hash == t.hash))
		write(w, r, a)
	})
}

func cacheControl(current bool) string {
	if current {
		return "public, max-age=31536000, immutable"
	}
	return "no-cache"
}

func write(w http.ResponseWriter, r *http.Request, a asset) {
	body := a.body
	if a.gzipped != nil {
		w.Header().Set("Vary", "Accept-Encoding")
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			body = a.gzipped
		}
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	if r.Method != http.MethodHead {
		w.Write(body) // a reader that went away is no error of ours
	}
}
