package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
)

// failure is a host that failed, as JSON shows it.
type failure struct {
	Host     string       `json:"host"`
	Class    remote.Class `json:"class"`
	Error    string       `json:"error"`
	NextStep string       `json:"next_step"`
}

func failureOf(host string, err error) failure {
	class := remote.ClassOf(err)
	text := strings.TrimPrefix(err.Error(), host+": ")
	return failure{Host: host, Class: class, Error: text, NextStep: remote.NextStepOf(err)}
}

// failuresOf lists the failures among results, in the order of the hosts.
func failuresOf[T any](results []remote.Result[T]) []failure {
	failures := []failure{}
	for _, r := range results {
		if r.Err != nil {
			failures = append(failures, failureOf(r.Host.Name, r.Err))
		}
	}
	return failures
}

// writeFailures sums failures up for people: by cause, each with its hosts and
// its next step.
func writeFailures(w io.Writer, failures []failure, total int) {
	if len(failures) == 0 {
		return
	}
	byClass := make(map[remote.Class][]failure)
	for _, f := range failures {
		byClass[f.Class] = append(byClass[f.Class], f)
	}
	classes := make([]remote.Class, 0, len(byClass))
	for class := range byClass {
		classes = append(classes, class)
	}
	slices.SortFunc(classes, func(a, b remote.Class) int {
		return cmp.Or(cmp.Compare(len(byClass[b]), len(byClass[a])), cmp.Compare(a, b))
	})
	fmt.Fprintf(w, "%d of %s failed:\n", len(failures), plural(total, "host"))
	for _, class := range classes {
		fmt.Fprintf(w, "  %s (%d)\n", class, len(byClass[class]))
		for _, f := range byClass[class] {
			fmt.Fprintf(w, "    %s: %s\n", f.Host, printable(oneLine(f.Error)))
		}
		for _, step := range stepsOf(byClass[class]) {
			fmt.Fprintf(w, "    next: %s\n", printable(step))
		}
	}
}

// stepsOf are the next steps of failures, each once.
func stepsOf(failures []failure) []string {
	var steps []string
	for _, f := range failures {
		if !slices.Contains(steps, f.NextStep) {
			steps = append(steps, f.NextStep)
		}
	}
	return steps
}

// writeDuplicates says which names lead to the same machine, when that is found.
func writeDuplicates(w io.Writer, duplicates []controller.Duplicate) {
	for _, d := range duplicates {
		if d.New {
			fmt.Fprintln(w, printable(d.String()))
		}
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// conclude is the end of a command on a fleet: the summary of failures on
// stderr, and the exit code.
func (p *program) conclude(f *fleet, failures []failure, duplicates []controller.Duplicate) error {
	f.bar.end()
	hosts := len(f.Hosts) - len(duplicates)
	writeDuplicates(p.err, duplicates)
	if !f.quiet {
		writeFailures(p.err, failures, hosts)
	}
	return fleetExit(failures, hosts, f.quiet)
}
