package render

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// HostLog reports each host of a loop once when it is lost, and once when it is back. The zero HostLog knows no host.
type HostLog struct {
	known map[snapshot.Hostname]*hostState // nil before the first look
	steps map[string]time.Time             // when each next step was printed

	// Lost and Back count the losses and returns so far.
	Lost, Back int
}

// hostState is about a host that fails or recently failed.
type hostState struct {
	class   remote.Class // empty while it answers
	since   time.Time    // of the present failure, or of answering
	atStart bool         // failed at the first look, and maybe before
	losses  []time.Time  // recent ones
	silent  bool         // changes too often to report
}

const (
	flapLosses = 3              // losses
	flapWindow = time.Hour      // within this time make a host unsteady, until it is unchanged for as long
	stepsAgain = 24 * time.Hour // when to repeat a next step
)

// Look returns lines about hosts that, since the last look, are lost, fail for another reason, or are back.
func (l *HostLog) Look(cluster snapshot.Cluster, now time.Time) []string {
	first := l.known == nil
	if first {
		l.known, l.steps = make(map[snapshot.Hostname]*hostState), make(map[string]time.Time)
	}
	failures := make(map[string][]remote.Failure) // by prefix
	var back []hostBack
	present := make(map[snapshot.Hostname]bool, len(cluster.Hosts))
	failed := 0
	for i := range cluster.Hosts {
		h := &cluster.Hosts[i]
		present[h.Name] = true
		switch {
		case h.Err != nil:
			failed++
			f := remote.FailureOf(string(h.Name), h.Err)
			if change := l.fails(h.Name, f.Class, first, now); change != "" {
				failures[change] = append(failures[change], f)
			}
		case h.Snapshot != nil: // else there is no answer yet
			if change, away := l.answers(h.Name, now); change != "" {
				back = append(back, hostBack{string(h.Name), change, away})
			}
		}
	}
	maps.DeleteFunc(l.known, func(name snapshot.Hostname, _ *hostState) bool { return !present[name] })
	if first {
		return firstLines(failures[isLost], len(cluster.Hosts))
	}
	lines := backLines(back)
	for _, change := range []string{isLost, isChanged, isUnsteady} {
		lines = append(lines, l.lines(change, failures[change], now)...)
	}
	if len(lines) > 0 {
		lines[0] += answering(len(cluster.Hosts)-failed, len(cluster.Hosts))
	}
	return lines
}

func answering(answer, total int) string {
	if answer == total {
		return "; all hosts answer"
	}
	return fmt.Sprintf("; %d of %s answer", answer, text.Plural(total, "host"))
}

// Prefixes of lines about failing hosts, with the numbers from above.
const (
	isLost     = "Lost: "
	isChanged  = "Still lost: "
	isUnsteady = "Unsteady (lost 3 times within 1h; reported again after 1h without a change): "
)

// fails returns a prefix for the line; empty to print nothing.
func (l *HostLog) fails(name snapshot.Hostname, class remote.Class, first bool, now time.Time) string {
	h := l.known[name]
	if h == nil {
		h = &hostState{since: now}
		l.known[name] = h
	}
	if h.class == "" {
		l.Lost++
		h.class, h.since, h.atStart = class, now, first
		h.losses = append(slices.DeleteFunc(h.losses, func(t time.Time) bool { return now.Sub(t) > flapWindow }), now)
		switch {
		case h.silent:
			return ""
		case len(h.losses) >= flapLosses:
			h.silent = true
			return isUnsteady
		}
		return isLost
	}
	switch {
	case h.silent && now.Sub(h.since) >= flapWindow:
		h.silent, h.class = false, class
		return isChanged
	case h.class != class:
		h.class = class
		if !h.silent {
			return isChanged
		}
	}
	return ""
}

// hostBack is a host that is back. away is how long it failed, or was steady.
type hostBack struct {
	name, change string
	away         time.Duration
}

// answers returns a prefix for the line, and how long the host was unchanged; empty to print nothing.
func (l *HostLog) answers(name snapshot.Hostname, now time.Time) (change string, away time.Duration) {
	h := l.known[name]
	if h == nil {
		return "", 0
	}
	away = now.Sub(h.since)
	switch {
	case h.class != "":
		l.Back++
		h.class, h.since = "", now
		switch {
		case h.silent:
		case h.atStart:
			change = "Back after at least"
		default:
			change = "Back after"
		}
	case away >= flapWindow:
		if h.silent {
			change = "Steady again for"
		}
		delete(l.known, name)
	}
	return change, away
}

func firstLines(failures []remote.Failure, total int) []string {
	var b strings.Builder
	WriteFailures(&b, failures, total)
	if b.Len() == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

// lines repeats no recent next steps.
func (l *HostLog) lines(prefix string, failures []remote.Failure, now time.Time) []string {
	var lines []string
	causes := remote.Causes(failures)
	for _, line := range CauseLines(causes) {
		lines = append(lines, prefix+line)
	}
	for _, step := range NextSteps(causes) {
		if at, said := l.steps[step]; said && now.Sub(at) < stepsAgain {
			continue
		}
		l.steps[step] = now
		lines = append(lines, "next: "+step)
	}
	return lines
}

func backLines(back []hostBack) []string {
	away := func(h hostBack) string { return h.change + " " + text.ShortDuration(h.away) + ": " }
	slices.SortStableFunc(back, func(a, b hostBack) int { return cmp.Compare(b.away, a.away) })
	var lines []string
	for len(back) > 0 {
		n, prefix := 0, away(back[0])
		var names []string
		for n < len(back) && away(back[n]) == prefix {
			names = append(names, back[n].name)
			n++
		}
		back = back[n:]
		lines = append(lines, prefix+Hosts(names)+countOf(names))
	}
	return lines
}
