package gpus

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// options are what the command line asks for; none of them is the plain table.
type options struct {
	list, query, xml    bool
	queryGPU, queryApps []string
	csv                 bool
	noHeader, noUnits   bool
}

var errCombination = errors.New("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n") //nolint:revive,staticcheck // nvidia-smi's words

func parseArgs(args []string) (options, error) {
	var o options
	for _, arg := range args {
		if err := o.take(arg); err != nil {
			return o, err
		}
	}
	asked := 0
	for _, mode := range []bool{o.list, o.query || o.xml, o.queryGPU != nil, o.queryApps != nil} {
		if mode {
			asked++
		}
	}
	queries := o.queryGPU != nil || o.queryApps != nil
	if asked > 1 || o.query != o.xml || queries != o.csv {
		return o, errCombination
	}
	return o, nil
}

func (o *options) take(arg string) error {
	name, value, _ := strings.Cut(arg, "=")
	switch name {
	case "-L", "--list-gpus":
		o.list = true
	case "-q", "--query":
		o.query = true
	case "-x", "--xml-format":
		o.xml = true
	case "--query-gpu":
		return takeColumns(&o.queryGPU, value, gpuColumns)
	case "--query-compute-apps":
		return takeColumns(&o.queryApps, value, appColumns)
	case "--format":
		return o.takeFormat(value)
	default:
		return fmt.Errorf("Option %q is not recognized. Please run 'nvidia-smi -h' for help.\n", arg) //nolint:revive,staticcheck // nvidia-smi's words
	}
	return nil
}

func takeColumns(into *[]string, list string, known []column) error {
	*into = []string{}
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if !slices.ContainsFunc(known, func(c column) bool { return slices.Contains(c.names, name) }) {
			return fmt.Errorf("Field %q is not a valid field to query.\n", name) //nolint:revive,staticcheck // nvidia-smi's words
		}
		*into = append(*into, name)
	}
	return nil
}

func (o *options) takeFormat(list string) error {
	for word := range strings.SplitSeq(list, ",") {
		switch strings.TrimSpace(word) {
		case "csv":
			o.csv = true
		case "noheader":
			o.noHeader = true
		case "nounits":
			o.noUnits = true
		default:
			return fmt.Errorf("Option %q is not recognized. Please run 'nvidia-smi -h' for help.\n", "--format="+list) //nolint:revive,staticcheck // nvidia-smi's words
		}
	}
	return nil
}
