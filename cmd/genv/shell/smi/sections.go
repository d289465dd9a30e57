package smi

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// dialect is how -q writes in text or in XML. Both have a head with the number
// of GPUs and then, for each GPU in the order of the indices, a section.
type dialect struct {
	attached func() *regexp.Regexp // the number of GPUs, as its second group
	start    func() *regexp.Regexp // of a section, with the address of the bus as its first group
	similar  string                // what a line begins with that must be a start
	end      string                // the line that follows the last section; empty for none
	memory   string                // the line that starts a section's framebuffer usage
	over     func() *regexp.Regexp // the line that ends it
	total    func() *regexp.Regexp // the number of MiB, as its second group
	apps     func(lines []string, v View, head string) ([]string, bool)
}

var textDialect = dialect{
	attached: lazily(`^(Attached GPUs\s+: )(\d+)()$`),
	start:    lazily(`^GPU ([0-9A-Fa-f]+:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])$`),
	similar:  "GPU ",
	memory:   "    FB Memory Usage",
	over:     lazily(`^ {0,4}\S|^$`),
	total:    lazily(`^( {8}Total\s+: )(\d+)( MiB)$`),
	apps:     keepTextApps,
}

var xmlDialect = dialect{
	attached: lazily(`^(\s*<attached_gpus>)(\d+)(</attached_gpus>)$`),
	start:    lazily(`^\t<gpu id="([^"]*)">$`),
	similar:  "\t<gpu ",
	end:      "</nvidia_smi_log>",
	memory:   "\t\t<fb_memory_usage>",
	over:     lazily(`^\t\t</fb_memory_usage>$`),
	total:    lazily(`^(\t\t\t<total>)(\d+)( MiB</total>)$`),
	apps:     keepXMLApps,
}

// rewriteSections keeps the sections of the attached devices.
func (c CommandLine) rewriteSections(out string, v View, d dialect) (string, bool) {
	body := strings.TrimRight(out, "\n")
	head, sections, tail, ok := d.split(body)
	line := slices.IndexFunc(head, d.attached().MatchString)
	if !ok || line < 0 {
		return "", false
	}
	attached := d.attached().FindStringSubmatch(head[line])
	index, selected := c.single()
	if selected && len(sections) != 1 || !selected && strconv.Itoa(len(sections)) != attached[2] {
		return "", false
	}
	var kept []string
	devices := 0 // that are shown
	for i, section := range sections {
		if !selected {
			index = strconv.Itoa(i)
		}
		device := v.find(index, at(d.start().FindStringSubmatch(section[0])[1]))
		if device == nil {
			continue
		}
		devices++
		d.setTotal(section, device)
		rows, ok := d.apps(section, v, head[line])
		if !ok {
			return "", false
		}
		kept = append(kept, rows...)
	}
	if !v.Renumbered || selected {
		devices = len(v.Devices)
	}
	head[line] = attached[1] + strconv.Itoa(devices) + attached[3]
	text := strings.Join(slices.Concat(head, kept, tail), "\n")
	return strings.TrimRight(text, "\n") + out[len(body):], true
}

// split takes the lines apart at the starts of sections.
func (d dialect) split(out string) (head []string, sections [][]string, tail []string, ok bool) {
	lines := strings.Split(out, "\n")
	if last := slices.Index(lines, d.end); d.end != "" && last >= 0 {
		lines, tail = lines[:last], lines[last:]
	}
	for _, line := range lines {
		switch {
		case d.start().MatchString(line):
			sections = append(sections, []string{line})
		case strings.HasPrefix(line, d.similar):
			return nil, nil, nil, false
		case len(sections) == 0:
			head = append(head, line)
		default:
			sections[len(sections)-1] = append(sections[len(sections)-1], line)
		}
	}
	return head, sections, tail, true
}

// setTotal writes the capacity in the place of the device's total memory.
func (d dialect) setTotal(section []string, device *Device) {
	inside := false
	for i, line := range section {
		if inside && d.over().MatchString(line) {
			return
		}
		inside = inside || line == d.memory
		if m := d.total().FindStringSubmatch(line); inside && m != nil {
			section[i] = m[1] + strings.TrimSpace(device.total(m[2])) + m[3]
		}
	}
}

var textPID = lazily(`^ {8}Process ID\s+: (\d+)$`)

// keepTextApps keeps the environment's processes. Each begins with the line
// that the first one began with ("GPU instance ID", or "Process ID" in older
// drivers).
func keepTextApps(section []string, v View, head string) ([]string, bool) {
	start := slices.Index(section, "    Processes")
	if start < 0 {
		return section, true
	}
	end := start + 1
	for end < len(section) && strings.HasPrefix(section[end], "        ") {
		end++
	}
	var kept []string
	for _, app := range groups(section[start+1 : end]) {
		at := slices.IndexFunc(app, textPID().MatchString)
		if at < 0 {
			return nil, false
		}
		if v.owns(textPID().FindStringSubmatch(app[at])[1]) {
			kept = append(kept, app...)
		}
	}
	title := section[start]
	if len(kept) == 0 {
		title += strings.Repeat(" ", max(strings.Index(head, ": ")-len(title), 1)) + ": None"
	}
	return slices.Concat(section[:start], []string{title}, kept, section[end:]), true
}

// groups takes lines apart at each one with the key of the first.
func groups(lines []string) [][]string {
	var groups [][]string
	for _, line := range lines {
		key, _, _ := strings.Cut(line, ":")
		first, _, _ := strings.Cut(lines[0], ":")
		if key == first {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], line)
	}
	return groups
}

var xmlPID = lazily(`^\s*<pid>(\d+)</pid>$`)

func keepXMLApps(section []string, v View, _ string) ([]string, bool) {
	var kept, app []string
	inside, owned, known := false, false, false
	for _, line := range section {
		switch strings.TrimSpace(line) {
		case "<process_info>":
			inside, owned, known, app = true, false, false, nil
		case "</process_info>":
			if !inside || !known {
				return nil, false
			}
			if inside = false; owned {
				kept = append(append(kept, app...), line)
			}
			continue
		}
		if m := xmlPID().FindStringSubmatch(line); inside && m != nil {
			owned, known = v.owns(m[1]), true
		}
		if inside {
			app = append(app, line)
		} else {
			kept = append(kept, line)
		}
	}
	return kept, !inside
}
