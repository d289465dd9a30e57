package main

import (
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

// layouts are how people write a moment; without a zone it is this machine's.
var layouts = []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"}

// momentOf reads a moment; now, if there is none.
func (p *program) momentOf(text string) (time.Time, error) {
	if text == "" {
		return p.now(), nil
	}
	for _, layout := range layouts {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usage("%q is no time: write it as 2026-11-20T22:00, or 2026-11-20", text)
}

// sinceOf reads a moment or how long ago it was, as 2h or 7d; the zero time, if
// there is none.
func (p *program) sinceOf(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, ok := strictyaml.ParseDuration(text); ok {
		return p.now().Add(-ago), nil
	}
	t, err := p.momentOf(text)
	if err != nil {
		return t, usage("--since %q: write how long ago, as 2h or 7d, or a time as 2026-11-20T22:00", text)
	}
	return t, nil
}

// labelsOf reads KEY=VALUE, several times.
func labelsOf(words []string) (map[string]string, error) {
	labels := make(map[string]string, len(words))
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if !ok || key == "" {
			return nil, usage("--label %q: write it as KEY=VALUE, such as gpu=h100", word)
		}
		labels[key] = value
	}
	return labels, nil
}
