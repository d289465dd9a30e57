package gpus

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// options are what the command line asks for; without any, the table is shown.
type options struct {
	list, query, xml     bool
	gpuFields, appFields []string
	format               []string
}

// parseArgs also returns nvidia-smi's message about arguments that it refuses,
// "" for none.
func parseArgs(args []string) (o options, refusal string) {
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "-L", "--list-gpus":
			o.list = true
		case "-q", "--query":
			o.query = true
		case "-x", "--xml-format":
			o.xml = true
		case "--query-gpu":
			o.gpuFields = split(value)
		case "--query-compute-apps":
			o.appFields = split(value)
		case "--format":
			o.format = split(value)
		default:
			return o, notRecognized(arg)
		}
	}
	return o, cmp.Or(o.badFormat(), badField(o.gpuFields, gpuRow(view{}, Device{})), badField(o.appFields, appRow(view{}, App{})), o.badCombination())
}

func split(list string) []string {
	words := strings.Split(list, ",")
	for i := range words {
		words[i] = strings.TrimSpace(words[i])
	}
	return words
}

func notRecognized(arg string) string {
	return fmt.Sprintf("Option %q is not recognized. Please run 'nvidia-smi -h' for help.\n", arg)
}

func (o *options) badFormat() string {
	for _, word := range o.format {
		if !slices.Contains([]string{"csv", "noheader", "nounits"}, word) {
			return notRecognized("--format=" + strings.Join(o.format, ","))
		}
	}
	return ""
}

func badField(fields []string, known map[string]string) string {
	for _, name := range fields {
		if _, ok := known[name]; !ok {
			return fmt.Sprintf("Field %q is not a valid field to query.\n", name)
		}
	}
	return ""
}

func (o *options) badCombination() string {
	asked := 0
	for _, mode := range []bool{o.list, o.query || o.xml, o.gpuFields != nil, o.appFields != nil} {
		if mode {
			asked++
		}
	}
	fields := o.gpuFields != nil || o.appFields != nil
	if asked > 1 || o.xml && !o.query || fields != slices.Contains(o.format, "csv") {
		return "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n"
	}
	return ""
}
