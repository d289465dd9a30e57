package smi

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// The table has up to three parts: devices (two or three rows each), MIG instances (two rows each), and processes (a
// row each). Each has a heading that ends in a line of "=", and lines of "-" separate its entries. This is the format
// of drivers 470 to 610; up to 440 it lacks instances, GI and CI.
var (
	busRow    = text.Pattern(`^\|[^|]*\|\s+([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s`)
	deviceRow = text.Pattern(`^\|\s+(\d+)\s\s+\S`)
	migRow    = text.Pattern(`^\|\s+(\d+)\s+\d+\s+\d+\s+\d+\s*\|`)
	memoryRow = text.Pattern(`^(\|[^|]*\|\s*\d+MiB\s*/\s*)(\d+)(MiB\s*\|.*)$`)
	usedRow   = text.Pattern(`^(\|[^|]*\|)(\s*\d+)(MiB\s*/\s*\d+MiB\s*\|.*)$`)
	usedByApp = text.Pattern(`\s(\d+)MiB\s*\|$`)
	appRow    = text.Pattern(`^\|\s+(\d+)\s+(?:(?:N/A|\d+)\s+(?:N/A|\d+)\s+)?(\d+)\s+[CGM+]+\s`)
)

const noApps = "|  No running processes found"

type tablePart struct {
	heading string
	// keep returns what to show of a block; false if it isn't as expected.
	keep func(t *tableRewriter, block []string) ([]string, bool)
}

var parts = []tablePart{
	{"| GPU  Name", keepDevice},
	{"| MIG devices:", keepInstance},
	{"| Processes:", keepApps},
}

func rewriteTable(out string, v View) (string, bool) {
	t := tableRewriter{view: v, numbers: map[string]*Device{}}
	for line := range strings.SplitSeq(out, "\n") {
		if !t.line(line) {
			return "", false
		}
	}
	t.showUsed()
	return strings.Join(t.kept, "\n"), t.devices && t.apps && t.rows == nil
}

// showUsed replaces a device's used memory by that of the environment's processes, as 1.4.3 does, unless it is unknown.
func (t *tableRewriter) showUsed() {
	used := map[string]int64{} // in MiB, by device; -1 for unknown
	for _, row := range t.kept {
		app := appRow().FindStringSubmatch(row)
		if app == nil {
			continue
		}
		memory := usedByApp().FindStringSubmatch(row)
		if memory == nil || used[app[1]] < 0 {
			used[app[1]] = -1
			continue
		}
		mib, _ := strconv.ParseInt(memory[1], 10, 64) // 0 for too many digits
		used[app[1]] += mib
	}
	device := ""
	for i, row := range t.kept {
		if strings.HasPrefix(row, parts[1].heading) || strings.HasPrefix(row, parts[2].heading) {
			return
		}
		if m := deviceRow().FindStringSubmatch(row); m != nil {
			device = m[1]
		}
		if m := usedRow().FindStringSubmatch(row); m != nil && used[device] >= 0 {
			t.kept[i] = m[1] + padded(strconv.FormatInt(used[device], 10), len(m[2])) + m[3]
		}
	}
}

func padded(number string, width int) string {
	return strings.Repeat(" ", max(width-len(number), 0)) + number
}

type tableRewriter struct {
	view    View
	numbers map[string]*Device // attached devices, by the number in their row
	kept    []string
	heading *tablePart // the last heading
	rows    *tablePart // the part that is being read; nil outside
	block   []string
	border  string // the last one that wasn't kept
	shown   bool   // whether a block of this part was kept
	devices bool   // whether the first part was found
	apps    bool   // whether the last part was found
}

// line is false for a line that isn't as expected.
func (t *tableRewriter) line(line string) bool {
	switch {
	case t.rows == nil:
		return t.outside(line)
	case strings.HasPrefix(line, "|"):
		t.block = append(t.block, line)
		return true
	case strings.HasPrefix(line, "+-"):
		return t.endBlock(line)
	case strings.TrimSpace(line) == "" && len(t.block) == 0:
		if !t.shown {
			t.kept = append(t.kept, t.border)
		}
		t.kept = append(t.kept, line)
		t.rows, t.heading = nil, nil
		return true
	}
	return false
}

func (t *tableRewriter) outside(line string) bool {
	for i := range parts {
		if strings.HasPrefix(line, parts[i].heading) {
			t.heading = &parts[i]
		}
	}
	t.kept = append(t.kept, line)
	if !strings.HasPrefix(line, "|==") {
		return deviceRow().FindString(line) == "" // rows belong under a heading
	}
	t.rows, t.shown, t.border = t.heading, false, ""
	t.devices = t.devices || t.rows == &parts[0]
	t.apps = t.apps || t.rows == &parts[len(parts)-1]
	return t.rows != nil
}

func (t *tableRewriter) endBlock(border string) bool {
	kept, ok := t.rows.keep(t, t.block)
	t.block, t.border = nil, border
	if kept != nil {
		t.kept, t.shown = append(append(t.kept, kept...), border), true
	}
	return ok
}

func keepDevice(t *tableRewriter, block []string) ([]string, bool) {
	if len(block) < 2 || len(block) > 4 || !firstOnly(deviceRow, block) {
		return nil, false
	}
	number := deviceRow().FindStringSubmatch(block[0])[1]
	bus := busRow().FindStringSubmatch(block[0])
	if bus == nil && t.view.Renumbered {
		return nil, false
	}
	device := t.view.find(number, func(d *Device) bool { return hardware.SameAddress(d.Address, bus[1]) })
	if device == nil {
		return nil, true
	}
	t.numbers[number] = device
	for i, row := range block {
		if m := memoryRow().FindStringSubmatch(row); m != nil {
			block[i] = m[1] + device.total(m[2]) + m[3]
		}
	}
	block[0] = t.renumbered(block[0], deviceRow)
	return block, true
}

func (t *tableRewriter) renumbered(row string, numbered func() *regexp.Regexp) string {
	m := numbered().FindStringSubmatchIndex(row)
	if device := t.numbers[row[m[2]:m[3]]]; device != nil && t.view.Renumbered {
		return device.renumber(row, m[2], m[3])
	}
	return row
}

// firstOnly reports whether only the first row has an index, so that all belong to one device.
func firstOnly(indexed func() *regexp.Regexp, block []string) bool {
	for i, row := range block {
		if indexed().MatchString(row) != (i == 0) {
			return false
		}
	}
	return true
}

func keepInstance(t *tableRewriter, block []string) ([]string, bool) {
	if len(block) == 1 && strings.HasPrefix(block[0], "|  No MIG devices found") {
		return block, true
	}
	if len(block) == 0 || !firstOnly(migRow, block) {
		return nil, false
	}
	if t.numbers[migRow().FindStringSubmatch(block[0])[1]] == nil {
		return nil, true
	}
	block[0] = t.renumbered(block[0], migRow)
	return block, true
}

func keepApps(t *tableRewriter, block []string) ([]string, bool) {
	var kept []string
	for _, row := range block {
		match := appRow().FindStringSubmatch(row)
		switch {
		case match == nil && !(len(block) == 1 && strings.HasPrefix(row, noApps)):
			return nil, false
		case match == nil:
			kept = append(kept, row)
		case t.numbers[match[1]] != nil && t.view.owns(match[2]):
			kept = append(kept, t.renumbered(row, appRow))
		}
	}
	if len(kept) == 0 && len(block) > 0 {
		kept = []string{noApps + strings.Repeat(" ", max(len(block[0])-len(noApps)-1, 0)) + "|"}
	}
	return kept, kept != nil
}

// separator is between columns. nvidia-smi quotes nothing.
const separator = ", "

const uuidColumn = "uuid" // added to a query if devices are renumbered

// rewriteCSV drops the first column, which Args added, and the rows that it excludes.
func (c CommandLine) rewriteCSV(out, column string,
	row func(c CommandLine, key, rest string) (string, bool),
) (string, bool) {
	var kept strings.Builder
	header := c.header
	for line := range strings.Lines(out) {
		key, rest, ok := strings.Cut(line, separator)
		switch {
		case !ok || header && (key != column || strings.Count(rest, separator) != len(c.fields)-1) ||
			!header && column != uuidColumn && !decimal(key) && !strings.HasPrefix(key, "["):
			return "", false
		case header:
			header = false
			kept.WriteString(rest)
		default:
			if text, in := row(c, key, rest); in {
				kept.WriteString(text)
			}
		}
	}
	return kept.String(), !header
}

func (v View) gpuRow(c CommandLine, key, rest string) (string, bool) {
	device := v.find(key, named(key))
	if device == nil {
		return "", false
	}
	text, newline := strings.CutSuffix(rest, "\n")
	columns := strings.Split(text, separator)
	for i, field := range c.fields {
		if len(columns) != len(c.fields) {
			break
		}
		switch strings.TrimSpace(field) {
		case "memory.total":
			number, unit, _ := strings.Cut(columns[i], " ")
			columns[i] = strings.TrimSpace(device.total(number) + " " + unit)
		case "index":
			columns[i] = device.Index.String()
		}
	}
	text = strings.Join(columns, separator)
	if newline {
		text += "\n"
	}
	return text, true
}

func (v View) appRow(_ CommandLine, pid, rest string) (string, bool) { return rest, v.owns(pid) }

func decimal(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }
