package nvidiasmi

import (
	"fmt"
	"iter"
	"math"
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

// split splits a line of CSV into n fields; the last one may contain commas.
func split(line string, n int) ([]string, error) {
	fields := strings.SplitN(line, ",", n)
	if len(fields) != n {
		return nil, garbled(line)
	}
	return fields, nil
}

// known is the value of a field, or "" if the driver does not report it: "[N/A]", "[Not
// Supported]", "[Insufficient Permissions]", "[Unknown Error]", "[Not Found]", "[GPU
// requires reset]" and any other text in brackets.
func known(field string) string {
	field = strings.TrimSpace(field)
	if field == "N/A" || strings.HasPrefix(field, "[") && strings.HasSuffix(field, "]") {
		return ""
	}
	return field
}

// parser parses the fields of one line and keeps the first error.
type parser struct {
	line string
	err  error
}

func (p *parser) fail() {
	if p.err == nil {
		p.err = garbled(p.line)
	}
}

// number parses a field that can't be unknown.
func (p *parser) number(field string, limit int64) int64 {
	n, err := strconv.ParseUint(strings.TrimSpace(field), 10, 63)
	if err != nil || int64(n) > limit {
		p.fail()
		return 0
	}
	return int64(n)
}

func (p *parser) pid(field string) snapshot.PID {
	n := p.number(field, math.MaxInt32)
	if n == 0 {
		p.fail()
	}
	return snapshot.PID(n)
}

// maxMiB is 1 EiB: far more than any device has, and far from an overflow.
const maxMiB = 1 << 40

func (p *parser) memory(field string) snapshot.Memory {
	if known(field) == "" {
		return snapshot.Memory{}
	}
	return snapshot.MiB(p.number(field, maxMiB))
}

func (p *parser) percent(field string) *int {
	if known(field) == "" {
		return nil
	}
	n := int(p.number(field, 100))
	return &n
}

// celsius parses a temperature, which may be below zero. What no device can have is
// the value of a broken sensor: unknown.
func (p *parser) celsius(field string) *int {
	value := known(field)
	if value == "" {
		return nil
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		p.fail()
	}
	if err != nil || snapshot.CheckTemperature(n) != nil {
		return nil
	}
	return &n
}

// watts parses a power such as "71.12"; a broken sensor's is unknown.
func (p *parser) watts(field string) *float64 {
	value := known(field)
	if value == "" {
		return nil
	}
	w, err := strconv.ParseFloat(value, 64)
	if err != nil {
		p.fail()
	}
	if err != nil || snapshot.CheckPower(w) != nil {
		return nil
	}
	return &w
}

func (p *parser) uuid(field string) snapshot.GPUUUID {
	uuid := known(field)
	if uuid != "" && !isUUID(uuid) {
		p.fail()
		return ""
	}
	return snapshot.GPUUUID(uuid)
}

// isUUID says whether a text looks like "GPU-…" or "MIG-…", the latter with
// slashes in older drivers.
func isUUID(s string) bool {
	return s != "" && len(s) <= 128 && text.IsMadeOf(s, "-_/")
}

// maxShown bounds the text of nvidia-smi in an error, in characters.
const maxShown = 120

func garbled(line string) error {
	return fmt.Errorf("%w: %s", ErrGarbled, shown(line))
}

func shown(line string) string { return text.Quoted(strings.TrimSpace(line), maxShown) }

// firstLine is the first line of stdout, or else of stderr.
func firstLine(out RunResult) string {
	for _, stream := range [][]byte{out.Stdout, out.Stderr} {
		for line := range lines(stream) {
			return shown(line)
		}
	}
	return ""
}
