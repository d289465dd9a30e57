package metrics

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ContentType is that of Writer.Text.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Writer writes Prometheus' text format 0.0.4 (https://prometheus.io/docs/instrumenting/exposition_formats/). The zero
// value works. A family must be complete before the next begins.
type Writer struct {
	text   []byte
	name   string
	labels []string
}

// Gauge begins a family of gauges with these labels.
func (w *Writer) Gauge(name, help string, labels ...string) { w.family("gauge", name, help, labels) }

// Value writes a gauge without labels.
func (w *Writer) Value(name, help string, value float64) {
	w.Gauge(name, help)
	w.Sample(value)
}

// Counter begins a family of counters.
func (w *Writer) Counter(name, help string, labels ...string) {
	w.family("counter", name, help, labels)
}

func (w *Writer) family(kind, name, help string, labels []string) {
	w.name, w.labels = name, labels
	w.text = append(w.text, "# HELP "+name+" "+helpEscapes.Replace(help)+"\n# TYPE "+name+" "+kind+"\n"...)
}

// Sample writes a sample, with values in the order of the labels.
func (w *Writer) Sample(value float64, labels ...string) {
	w.text = append(w.text, w.name...)
	separator := byte('{')
	for i, label := range labels {
		w.text = append(w.text, separator)
		w.text = append(w.text, w.labels[i]...)
		w.text = append(w.text, '=', '"')
		w.text = appendLabel(w.text, label)
		w.text = append(w.text, '"')
		separator = ','
	}
	if separator == ',' {
		w.text = append(w.text, '}')
	}
	w.text = append(w.text, ' ')
	w.text = strconv.AppendFloat(w.text, value, 'f', -1, 64)
	w.text = append(w.text, '\n')
}

func (w *Writer) histogram(h *histogram, name, help string) {
	w.family("histogram", name, help, []string{"le"})
	w.name = name + "_bucket"
	var count uint64
	for i, bound := range h.bounds {
		count += h.counts[i]
		w.Sample(float64(count), strconv.FormatFloat(bound, 'g', -1, 64))
	}
	count += h.counts[len(h.bounds)]
	w.Sample(float64(count), "+Inf")
	w.name = name + "_sum"
	w.Sample(h.sum)
	w.name = name + "_count"
	w.Sample(float64(count))
}

// Text is what was written.
func (w *Writer) Text() []byte { return w.text }

// family is a family of gauges, with space-separated labels.
type family struct{ name, labels, help string }

// gauges are families written interleaved; the text has each as a whole.
type gauges struct {
	families []family
	writers  map[string]*Writer
	host     []string // value of the first label of all samples, if there is one
}

// begin begins families. prefix and labels precede their own.
func begin(families []family, prefix, labels string) *gauges {
	g := &gauges{families: families, writers: make(map[string]*Writer, len(families))}
	for _, f := range families {
		g.writers[f.name] = new(Writer)
		g.writers[f.name].Gauge(prefix+f.name, f.help, strings.Fields(labels+f.labels)...)
	}
	return g
}

func (g *gauges) add(family string, value float64, labels ...string) {
	g.writers[family].Sample(value, append(slices.Clip(g.host), labels...)...)
}

func (g *gauges) text() (text []byte) {
	for _, f := range g.families {
		text = append(text, g.writers[f.name].text...)
	}
	return text
}

// unreadable replaces invalid UTF-8, and NUL, which ends Prometheus' parser.
const unreadable = "\uFFFD"

var (
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`, "\x00", unreadable)
)

// appendLabel is fast for the many values without escapes.
func appendLabel(text []byte, label string) []byte {
	for i := range len(label) {
		if c := label[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			return append(text, labelEscapes.Replace(strings.ToValidUTF8(label, unreadable))...)
		}
	}
	return append(text, label...)
}

type histogram struct {
	bounds []float64 // ascending, inclusive
	counts []uint64  // per bucket, plus one above the last bound
	sum    float64
}

func newHistogram(bounds ...float64) *histogram {
	return &histogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

func (h *histogram) observe(value float64) {
	at, _ := slices.BinarySearch(h.bounds, value)
	h.counts[at]++
	h.sum += value
}
