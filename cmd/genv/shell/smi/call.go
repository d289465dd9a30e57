package smi

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Call is a command line of nvidia-smi whose output can be rewritten.
type Call struct {
	form     form
	args     []string
	fields   []string // of form gpus or apps
	header   bool     // likewise
	selected string   // the operand of -i; empty for none
}

type form int

const (
	table form = iota
	list
	query
	xml
	gpus
	apps
)

var (
	switches = map[string]string{"-L": "L", "--list-gpus": "L", "-q": "q", "--query": "q", "-x": "x", "--xml-format": "x"}
	operands = map[string]string{
		"-i": "i", "--id": "i", "-d": "d", "--display": "d",
		"--query-gpu": "gpus", "--query-compute-apps": "apps", "--format": "format",
	}
	// forms are the combinations that nvidia-smi knows; -i goes with each.
	forms = map[string]form{
		"": table, "L": list, "q": query, "d q": query, "q x": xml, "d q x": xml, "format gpus": gpus, "apps format": apps,
	}
)

// Parse understands a command line, without the program's name. What it doesn't
// know is not ok: it is for the real program only.
func Parse(args []string) (Call, bool) {
	values := map[string]string{}
	for i := 0; i < len(args); i++ {
		flag, value, joined := strings.Cut(args[i], "=")
		if !joined && (flag == "-i" || flag == "-d") && i+1 < len(args) {
			i++
			value, joined = args[i], true
		}
		known := switches
		if joined {
			known = operands
		}
		key, ok := known[flag]
		if _, twice := values[key]; !ok || twice || joined && value == "" {
			return Call{}, false
		}
		values[key] = value
	}
	selected := values["i"]
	delete(values, "i")
	form, ok := forms[strings.Join(slices.Sorted(maps.Keys(values)), " ")]
	if !ok {
		return Call{}, false
	}
	return Call{form: form, args: args, selected: selected}.finish(values)
}

// finish reads the operands that a form depends on.
func (c Call) finish(values map[string]string) (Call, bool) {
	switch c.form {
	case gpus, apps:
		c.fields = strings.Split(values["gpus"]+values["apps"], ",")
		options := strings.Split(values["format"], ",")
		c.header = !slices.Contains(options, "noheader")
		return c, slices.Contains(options, "csv")
	case query, xml:
		// The sections have no index: it follows from their order, or from a
		// selection of one.
		_, single := c.single()
		return c, c.selected == "" || single
	case table, list:
	}
	return c, true
}

// single is the device that -i names by its index, if it names only one.
func (c Call) single() (string, bool) {
	n, err := strconv.ParseUint(c.selected, 10, 16)
	return strconv.FormatUint(n, 10), err == nil
}

// Outside is whether the call selects a device that the view doesn't have, or where numbers
// mean nothing only such devices: the answer is NoDevices.
func (c Call) Outside(v View) bool {
	if v.Renumbered && c.selected != "" {
		return v.uuids(c.selected) == ""
	}
	index, ok := c.single()
	return ok && v.device(index) == nil
}

// NoDevices is what nvidia-smi prints, with status 6, if a selection has none of its
// devices.
const (
	NoDevices       = "No devices were found\n"
	NoDevicesStatus = 6
)

// Args are the arguments for the real program: to a query the field is added by
// which rows are chosen, and where numbers mean nothing, devices are selected by UUID.
func (c Call) Args(v View) []string {
	args := slices.Clone(c.args)
	for i, arg := range args {
		switch flag, value, _ := strings.Cut(arg, "="); flag {
		case "--query-gpu":
			args[i] = flag + "=" + v.keyColumn() + "," + value
		case "--query-compute-apps":
			args[i] = flag + "=pid," + value
		case "-i", "--id":
			switch {
			case !v.Renumbered:
			case value != "":
				args[i] = flag + "=" + v.uuids(value)
			case i+1 < len(args):
				args[i+1] = v.uuids(args[i+1])
			}
		}
	}
	return args
}

// keyColumn is the field of a query about devices by which its rows are chosen.
func (v View) keyColumn() string {
	if v.Renumbered {
		return uuidColumn
	}
	return "index"
}

// uuids replaces the indices of attached devices in a selection by their UUIDs. Others are
// left out: the real program would take them for numbers of devices that it shows.
func (v View) uuids(selection string) string {
	var names []string
	for name := range strings.SplitSeq(selection, ",") {
		n, err := strconv.ParseUint(strings.TrimSpace(name), 10, 16)
		switch d := v.device(strconv.FormatUint(n, 10)); {
		case err != nil: // a UUID or an address
			names = append(names, name)
		case d != nil && d.UUID != "":
			names = append(names, string(d.UUID))
		}
	}
	return strings.Join(names, ",")
}
