package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"sync"
	"time"
)

//go:embed static
var staticFiles embed.FS

// asset is a file that pages refer to.
type asset struct {
	content []byte
	kind    string
}

type assetList struct {
	files   map[string]asset
	version string // changes with the content
}

var assets = sync.OnceValue(func() assetList {
	list, hash := assetList{files: make(map[string]asset)}, sha256.New()
	for _, file := range []struct{ name, kind string }{
		{"style.css", "text/css; charset=utf-8"}, {"live.js", "text/javascript; charset=utf-8"}, {"icon.svg", "image/svg+xml"},
	} {
		content, err := staticFiles.ReadFile("static/" + file.name)
		if err != nil {
			panic(err) // it is embedded
		}
		hash.Write(content)
		list.files[file.name] = asset{content, file.kind}
	}
	list.version = hex.EncodeToString(hash.Sum(nil)[:8])
	return list
})

// static serves the script and the styles, which may be kept for as long as their version
// is the same.
func static(w http.ResponseWriter, r *http.Request) {
	list := assets()
	file, exists := list.files[r.PathValue("file")]
	if !exists {
		http.Error(w, "There is no such file.", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", file.kind)
	w.Header().Set("Cache-Control", "no-cache")
	if r.URL.RawQuery == list.version {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(file.content))
}
