package smi

import "strings"

// separator is what nvidia-smi writes between columns. It quotes nothing.
const separator = ", "

// uuidColumn is the column that is added to a query about devices where their numbers mean
// nothing.
const uuidColumn = "uuid"

// rewriteCSV drops the first column, which was added to the query, and the rows
// that it doesn't choose.
func (c Call) rewriteCSV(out, column string, row func(c Call, key, rest string) (string, bool)) (string, bool) {
	var kept strings.Builder
	header := c.header
	for line := range strings.Lines(out) {
		key, rest, ok := strings.Cut(line, separator)
		switch {
		case !ok || header && (key != column || strings.Count(rest, separator) != len(c.fields)-1) || !header && column != uuidColumn && !decimal(key) && !strings.HasPrefix(key, "["):
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

// gpuRow is the row of an attached device.
func (v View) gpuRow(c Call, key, rest string) (string, bool) {
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

// appRow is the row of a process of the environment.
func (v View) appRow(_ Call, pid, rest string) (string, bool) { return rest, v.owns(pid) }

func decimal(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }
