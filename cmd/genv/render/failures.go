package render

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// FailuresOf lists failures in the order of the hosts.
func FailuresOf[T any](results []remote.Result[T]) []remote.Failure {
	failures := []remote.Failure{}
	for _, r := range results {
		if r.Err != nil {
			failures = append(failures, remote.FailureOf(r.Host.Name, r.Err))
		}
	}
	return failures
}

// FailuresIn lists the hosts of a cluster that did not answer.
func FailuresIn(cluster snapshot.Cluster) []remote.Failure {
	failures := []remote.Failure{}
	for _, h := range cluster.Failed() {
		failures = append(failures, remote.FailureOf(string(h.Name), h.Err))
	}
	return failures
}

// WriteFailures summarises failures by class and cause, each with its hosts and next steps.
func WriteFailures(w io.Writer, failures []remote.Failure, total int) {
	if len(failures) == 0 {
		return
	}
	hosts := make(map[remote.Class]int)
	for _, f := range failures {
		hosts[f.Class]++
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %s failed:\n", len(failures), text.Plural(total, "host"))
	for _, causes := range ByClass(remote.Causes(failures)) {
		fmt.Fprintf(&b, "  %s (%d)\n", causes[0].Class, hosts[causes[0].Class])
		for _, line := range CauseLines(causes) {
			fmt.Fprintf(&b, "    %s\n", line)
		}
		for _, step := range NextSteps(causes) {
			fmt.Fprintf(&b, "    next: %s\n", step)
		}
	}
	_, _ = io.WriteString(w, b.String()) // in one write, to keep it together
}

// ByClass splits causes at changes of the class.
func ByClass(causes []remote.Cause) (split [][]remote.Cause) {
	for len(causes) > 0 {
		other := slices.IndexFunc(causes, func(c remote.Cause) bool { return c.Class != causes[0].Class })
		if other < 0 {
			other = len(causes)
		}
		split, causes = append(split, causes[:other]), causes[other:]
	}
	return split
}

// AlsoFailed is the end of a summary.
func AlsoFailed(hosts int) string {
	if hosts == 0 {
		return ""
	}
	return "; " + text.Plural(hosts, "host") + " failed"
}

const (
	maxCauses = 8   // of one class
	maxSteps  = 4   // of one class
	maxHosts  = 160 // characters of host names in a line, roughly
)

// CauseLines are lines such as "gpu-[03,07-12].lab: no route to host (8 hosts)".
func CauseLines(causes []remote.Cause) []string {
	var lines []string
	for i, c := range causes {
		if i == maxCauses && len(causes) > maxCauses+1 {
			rest := 0
			for _, c := range causes[i:] {
				rest += len(c.Hosts)
			}
			return append(lines, fmt.Sprintf("… and %s with other errors; --format json has them all",
				text.Plural(rest, "host")))
		}
		line := text.OneLine(c.Error) + countOf(c.Hosts)
		if hosts := Hosts(c.Hosts); hosts != "" { // this machine has no name
			line = hosts + ": " + line
		}
		lines = append(lines, line)
	}
	return lines
}

// Hosts joins names as patterns, shortened if they are many.
func Hosts(names []string) string { return text.ShortHosts(names, maxHosts) }

func countOf(names []string) string {
	if len(names) < 2 {
		return ""
	}
	return fmt.Sprintf(" (%s)", text.Plural(len(names), "host"))
}

// NextSteps are the next steps of causes, without duplicates.
func NextSteps(causes []remote.Cause) []string {
	var steps []string
	for _, c := range causes {
		for _, step := range c.NextSteps {
			step = text.PrintableLines(step)
			if !slices.Contains(steps, step) {
				steps = append(steps, step)
			}
		}
	}
	if left := len(steps) - maxSteps; left > 1 {
		steps = append(steps[:maxSteps], fmt.Sprintf("… and %d more; --format json has them all", left))
	}
	return steps
}

// WriteDuplicates reports new names of known machines.
func WriteDuplicates(w io.Writer, duplicates []controller.Duplicate) {
	for _, d := range duplicates {
		if d.New {
			fmt.Fprintln(w, text.PrintableLines(d.String()))
		}
	}
}
