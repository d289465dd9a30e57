package environment

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
)

// Queries are the values of `--query` and what each prints.
var Queries = map[string]func(host string, e *snapshot.Environment) string{
	"hostname":          func(host string, _ *snapshot.Environment) string { return host },
	"eid":               func(_ string, e *snapshot.Environment) string { return string(e.EID) },
	"uid":               func(_ string, e *snapshot.Environment) string { return strconv.FormatUint(uint64(e.UID), 10) },
	"username":          func(_ string, e *snapshot.Environment) string { return string(e.Username) },
	"creation":          func(_ string, e *snapshot.Environment) string { return e.Creation.String() },
	"config.name":       func(_ string, e *snapshot.Environment) string { return e.Config.Name },
	"config.gpu_memory": func(_ string, e *snapshot.Environment) string { return e.Config.GPUMemory.String() },
	"config.gpus":       func(_ string, e *snapshot.Environment) string { return gpusOf(&e.Config) },
	"pids":              func(_ string, e *snapshot.Environment) string { return JoinPIDs(e.PIDs) },
	"kernel_ids":        func(_ string, e *snapshot.Environment) string { return strings.Join(e.KernelIDs, " ") },
}

// JoinPIDs lists processes, separated by spaces.
func JoinPIDs(pids []snapshot.PID) string { return strings.Trim(fmt.Sprint(pids), "[]") }

// QueryNames are those values, sorted.
func QueryNames() []string { return slices.Sorted(maps.Keys(Queries)) }

// Facts is a row with what each query prints about an environment of a host.
func Facts(queries []string, host string, e *snapshot.Environment) []string {
	row := make([]string, len(queries))
	for i, q := range queries {
		row[i] = Queries[q](host, e)
	}
	return row
}
