package metrics

import (
	"strconv"
	"strings"
)

// ContentType is that of the text of a Writer.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Writer writes Prometheus' text format, version 0.0.4
// (https://prometheus.io/docs/instrumenting/exposition_formats/). Its zero value is ready
// for use. A family is written as a whole before the next one begins.
type Writer struct {
	text   []byte
	name   string
	labels []string
}

// Gauge begins a family of gauges, whose samples all have these labels.
func (w *Writer) Gauge(name, help string, labels ...string) {
	w.name, w.labels = name, labels
	w.text = append(w.text, "# HELP "+name+" "+helpEscapes.Replace(help)+"\n# TYPE "+name+" gauge\n"...)
}

// Sample writes a sample of the family, with the values of its labels in their order.
func (w *Writer) Sample(value float64, labels ...string) {
	w.text = append(w.text, w.name...)
	separator := byte('{')
	for i, label := range labels {
		w.text = append(w.text, separator)
		w.text = append(w.text, w.labels[i]...)
		w.text = append(w.text, '=', '"')
		w.text = append(w.text, labelEscapes.Replace(strings.ToValidUTF8(label, unreadable))...)
		w.text = append(w.text, '"')
		separator = ','
	}
	if len(labels) > 0 {
		w.text = append(w.text, '}')
	}
	w.text = append(w.text, ' ')
	w.text = strconv.AppendFloat(w.text, value, 'f', -1, 64)
	w.text = append(w.text, '\n')
}

// Text is what was written.
func (w *Writer) Text() []byte { return w.text }

// unreadable replaces what a label can't have: bytes that are not UTF-8, and NUL, at which
// Prometheus' parser ends.
const unreadable = "\uFFFD"

var (
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`, "\x00", unreadable)
)
