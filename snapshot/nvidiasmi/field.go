package nvidiasmi

import (
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// lines are the non-blank lines of an output, without trailing white space.
func lines(data []byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line := range strings.Lines(string(data)) {
			line = strings.TrimRight(line, "\r\n\t ")
			if line != "" && !yield(line) {
				return
			}
		}
	}
}

// known is the value of a field, or "" if the driver does not report it: "[N/A]", "[Not Supported]", "[Insufficient
// Permissions]", "[Unknown Error]", "[Not Found]", "[GPU requires reset]" and any other text in brackets.
func known(field string) string {
	field = strings.TrimSpace(field)
	if field == "N/A" || strings.HasPrefix(field, "[") && strings.HasSuffix(field, "]") {
		return ""
	}
	return field
}

// plain is a known value that is safe to show, or "".
func plain(field string) string {
	if field = known(field); snapshot.CheckText("value", field) != nil {
		return ""
	}
	return field
}

// silent are the texts that say nothing about the health of a GPU.
var silent = []string{
	"N/A", "[N/A]", "[Not Supported]", "[Insufficient Permissions]", "[No Permission]",
	"[Function Not Found]", "[Requested functionality has been deprecated]",
}

// row is a row of values of a GPU. An error text in place of one is kept.
type gpuRow struct {
	failed  bool
	errors  []string // each once
	columns [][]string
}

func (r *gpuRow) note(text, column string) {
	i := slices.Index(r.errors, text)
	if i < 0 {
		i = len(r.errors)
		r.errors, r.columns = append(r.errors, text), append(r.columns, nil)
	}
	r.columns[i] = append(r.columns[i], column)
}

// value is the value of a field, or "" if the driver does not report it. A GPU has failed if
// the text says so, or if a vital value is an error text.
func (r *gpuRow) value(column, field string, vital bool) string {
	field = strings.TrimSpace(field)
	if known(field) != "" || field == "" || slices.Contains(silent, field) {
		return known(field)
	}
	r.note(field, column)
	r.failed = r.failed || vital || field == "[GPU is lost]" || field == "[GPU requires reset]"
	return ""
}

// problem says which values are error texts; empty for none.
func (r *gpuRow) problem() string {
	var parts []string
	for i, error := range r.errors {
		parts = append(parts, strings.Join(r.columns[i], ", ")+": "+printed(strings.Trim(error, "[]")))
	}
	return strings.Join(parts, "; ")
}

// number is a value from 0 to limit; ok is false for what no GPU can have.
func number(value string, limit int64) (n int64, ok bool) {
	parsed, err := strconv.ParseUint(strings.TrimSpace(value), 10, 63)
	return int64(parsed), err == nil && int64(parsed) <= limit
}

// maxMiB is 1 EiB: far more than any device has, and far from an overflow.
const maxMiB = 1 << 40

func (r *gpuRow) memory(column, field string) snapshot.Memory {
	value := r.value(column, field, true)
	if n, ok := number(value, maxMiB); ok {
		return snapshot.MiB(n)
	}
	if value != "" {
		r.note(value, column)
	}
	return snapshot.Memory{}
}

func (r *gpuRow) percent(field string) *int {
	n, ok := number(r.value("utilization", field, false), 100)
	percent := int(n)
	return ifSo(&percent, ok)
}

// celsius is a temperature, which may be below zero.
func (r *gpuRow) celsius(field string) *int {
	n, err := strconv.Atoi(r.value("temperature", field, false))
	return ifSo(&n, err == nil && snapshot.CheckTemperature(n) == nil)
}

// watts is a power such as "71.12".
func (r *gpuRow) watts(column, field string) *float64 {
	w, err := strconv.ParseFloat(r.value(column, field, false), 64)
	return ifSo(&w, err == nil && snapshot.CheckPower(w) == nil)
}

func ifSo[T any](value *T, ok bool) *T {
	if !ok {
		return nil
	}
	return value
}

func (r *gpuRow) uuid(field string) snapshot.GPUUUID {
	value := r.value("UUID", field, true)
	if value != "" && !isUUID(value) {
		r.note(value, "UUID")
		return ""
	}
	return snapshot.GPUUUID(value)
}

// isUUID says whether a text looks like "GPU-…" or "MIG-…", the latter with slashes in older drivers.
func isUUID(s string) bool {
	return s != "" && len(s) <= 128 && text.IsMadeOf(s, "-_/")
}

// maxShown bounds the text of nvidia-smi in an error, in characters.
const maxShown = 120

// printed is a line of nvidia-smi without the quotes that shown puts around it.
func printed(line string) string { return text.OneLine(text.Cut(line, maxShown)) }

func shown(line string) string { return text.Quoted(strings.TrimSpace(line), maxShown) }
