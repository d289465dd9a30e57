package environment

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
)

// environmentQueries are the words of `--query` and what each prints.
var Queries = map[string]func(host string, e *snapshot.Environment) string{
	"hostname":          func(host string, _ *snapshot.Environment) string { return host },
	"eid":               func(_ string, e *snapshot.Environment) string { return string(e.EID) },
	"uid":               func(_ string, e *snapshot.Environment) string { return strconv.FormatUint(uint64(e.UID), 10) },
	"username":          func(_ string, e *snapshot.Environment) string { return string(e.Username) },
	"creation":          func(_ string, e *snapshot.Environment) string { return e.Creation.String() },
	"config.name":       func(_ string, e *snapshot.Environment) string { return e.Config.Name },
	"config.gpu_memory": func(_ string, e *snapshot.Environment) string { return e.Config.GPUMemory.String() },
	"config.gpus": func(_ string, e *snapshot.Environment) string {
		if e.Config.GPUs == nil {
			return ""
		}
		return strconv.Itoa(*e.Config.GPUs)
	},
	"pids": func(_ string, e *snapshot.Environment) string {
		words := make([]string, len(e.PIDs))
		for i, pid := range e.PIDs {
			words[i] = strconv.Itoa(int(pid))
		}
		return strings.Join(words, " ")
	},
}

func QueryNames() []string { return slices.Sorted(maps.Keys(Queries)) }

func CheckQueries(queries []string) error {
	if len(queries) == 0 {
		return command.Usage("--query is missing: write one or more of %s", strings.Join(QueryNames(), " "))
	}
	for _, q := range queries {
		if Queries[q] == nil {
			return command.Usage("--query %q: write one of %s", q, strings.Join(QueryNames(), " "))
		}
	}
	return nil
}

// Creation prints a date as it is, or as an age by now.
func Creation(d snapshot.Date, now time.Time, timestamp bool) string {
	if timestamp || d.IsZero() {
		return d.String()
	}
	return render.Age(now.Sub(d.In(time.Local)))
}
