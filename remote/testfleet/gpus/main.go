package gpus

import (
	"cmp"
	"fmt"
	"io"
	"time"
)

// The environment variables that the stand-in reads.
const (
	EnvFile  = "GENV_SIM_GPUS"  // the path of the host's file
	EnvFault = "GENV_SIM_FAULT" // one of the Fault… texts, or empty
)

// Main is nvidia-smi on a simulated host: args are without the program's name.
// It returns the exit code; the codes and texts of failures are those of the
// real program (man nvidia-smi, RETURN VALUE), on stdout as there.
func Main(args []string, stdout, stderr io.Writer, getenv func(string) string) int {
	if code, failed := fail(getenv(EnvFault), stdout); failed {
		return code
	}
	options, err := parseArgs(args)
	if err != nil {
		fmt.Fprintf(stdout, "%v\n", err)
		return exitUsage
	}
	path := getenv(EnvFile)
	if path == "" {
		fmt.Fprintf(stderr, "the simulated nvidia-smi needs %s, the path of the host's GPUs\n", EnvFile)
		return exitUnknown
	}
	host, err := Read(path)
	if err != nil {
		fmt.Fprintf(stderr, "%v\n", err)
		return exitUnknown
	}
	return show(host.Living("/proc"), options, stdout, time.Now())
}

// The exit codes of nvidia-smi that appear here.
const (
	exitUsage    = 2
	exitNotFound = 6
	exitNoDriver = 9
	exitLost     = 15
	exitMismatch = 18
	exitUnknown  = 255
)

func show(h Host, o options, w io.Writer, now time.Time) int {
	if len(h.Devices) == 0 {
		fmt.Fprintln(w, "No devices were found")
		return exitNotFound
	}
	h.Driver, h.CUDA = cmp.Or(h.Driver, defaultDriver), cmp.Or(h.CUDA, defaultCUDA)
	var err error
	switch {
	case o.list:
		err = showList(w, h)
	case o.xml:
		err = showXML(w, h, now)
	case o.queryGPU != nil:
		err = showCSV(w, o, gpuColumns, o.queryGPU, gpuRows(h, now))
	case o.queryApps != nil:
		err = showCSV(w, o, appColumns, o.queryApps, appRows(h, now))
	default:
		err = showTable(w, h, now)
	}
	if err != nil {
		return exitUnknown // the reader has gone
	}
	return 0
}
