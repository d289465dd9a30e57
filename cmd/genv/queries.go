package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// environmentQueries are the words of `--query` and what each prints.
var environmentQueries = map[string]func(host string, e *snapshot.Environment) string{
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

func queryNames() []string { return slices.Sorted(maps.Keys(environmentQueries)) }

func checkQueries(queries []string) error {
	if len(queries) == 0 {
		return usage("--query is missing: write one or more of %s", strings.Join(queryNames(), " "))
	}
	for _, q := range queries {
		if environmentQueries[q] == nil {
			return usage("--query %q: write one of %s", q, strings.Join(queryNames(), " "))
		}
	}
	return nil
}

// moment prints a date as it is, or as an age.
func (p *program) moment(d snapshot.Date, timestamp bool) string {
	if timestamp || d.IsZero() {
		return d.String()
	}
	return age(p.now().Sub(d.In(time.Local)))
}

// age is a duration in its largest unit. Clocks of hosts differ, so that
// something may seem to be of the future: that is "now" as well.
func age(d time.Duration) string {
	units := []struct {
		name string
		size time.Duration
	}{{"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}, {"second", time.Second}}
	for _, u := range units {
		if n := int(d / u.size); n > 0 {
			return fmt.Sprintf("%s ago", plural(n, u.name))
		}
	}
	return "now"
}
