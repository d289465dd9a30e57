package render

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// FailuresOf lists the failures among results, in the order of the hosts.
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

// WriteFailures sums failures up for people: by cause, each with its hosts and
// its next step.
func WriteFailures(w io.Writer, failures []remote.Failure, total int) {
	if len(failures) == 0 {
		return
	}
	byClass := make(map[remote.Class][]remote.Failure)
	for _, f := range failures {
		byClass[f.Class] = append(byClass[f.Class], f)
	}
	classes := slices.SortedFunc(maps.Keys(byClass), func(a, b remote.Class) int {
		return cmp.Or(cmp.Compare(len(byClass[b]), len(byClass[a])), cmp.Compare(a, b))
	})
	fmt.Fprintf(w, "%d of %s failed:\n", len(failures), Plural(total, "host"))
	for _, class := range classes {
		fmt.Fprintf(w, "  %s (%d)\n", class, len(byClass[class]))
		for _, f := range byClass[class] {
			fmt.Fprintf(w, "    %s: %s\n", f.Host, text.OneLine(f.Error))
		}
		for _, step := range stepsOf(byClass[class]) {
			fmt.Fprintf(w, "    next: %s\n", text.PrintableLines(step))
		}
	}
}

// stepsOf are the next steps of failures, each once.
func stepsOf(failures []remote.Failure) []string {
	var steps []string
	for _, f := range failures {
		if !slices.Contains(steps, f.NextStep) {
			steps = append(steps, f.NextStep)
		}
	}
	return steps
}

// WriteDuplicates says which names lead to the same machine, when that is found.
func WriteDuplicates(w io.Writer, duplicates []controller.Duplicate) {
	for _, d := range duplicates {
		if d.New {
			fmt.Fprintln(w, text.PrintableLines(d.String()))
		}
	}
}
