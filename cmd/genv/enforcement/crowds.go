package enforcement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// crowds keep findings of one kind that come one after the other, as of a job array that
// starts processes all the time, from filling a screen: the first ones in an hour are
// printed, and the others are counted. What is done because of them is printed anyway.
type crowds map[crowdOf]*crowd

// crowdOf is what findings have in common.
type crowdOf struct {
	host snapshot.Hostname
	user snapshot.Username
	rule enforce.Rule
}

type crowd struct {
	since    time.Time // of its first finding in this hour
	findings int
	hidden   int // of them, since that was said
	said     bool
}

const (
	crowdWindow = time.Hour
	crowdShown  = 5 // findings that are printed in an hour
)

// admit says whether a new finding is to be printed.
func (l *crowds) admit(f *enforce.Finding, now time.Time) bool {
	if *l == nil {
		*l = make(crowds)
	}
	of := crowdOf{f.Host, f.User, f.Rule}
	c := (*l)[of]
	if c == nil {
		c = &crowd{since: now}
		(*l)[of] = c
	}
	c.findings++
	if c.findings <= crowdShown {
		return true
	}
	c.hidden++
	return false
}

// lines say how many findings were not printed: at first, and when the hour is over.
func (l crowds) lines(now time.Time) []string {
	var lines []string
	for _, of := range slices.SortedFunc(maps.Keys(l), compareCrowds) {
		c := l[of]
		ended := now.Sub(c.since) >= crowdWindow
		switch {
		case c.hidden > 0 && !c.said:
			lines = append(lines, on(of.host, fmt.Sprintf("… and %s%s; more are counted once in %s",
				render.Plural(c.hidden, "more such finding"), of.about(), text.FormatDuration(crowdWindow))))
			c.hidden, c.said = 0, true
		case c.hidden > 0 && ended:
			lines = append(lines, on(of.host, fmt.Sprintf("… and %s%s within %s",
				render.Plural(c.hidden, "more such finding"), of.about(), text.FormatDuration(crowdWindow))))
		}
		if ended {
			delete(l, of)
		}
	}
	return lines
}

func (of crowdOf) about() string {
	about := " (" + string(of.rule)
	if of.user != "" {
		about += ", user " + text.Shown(string(of.user))
	}
	return about + ")"
}

func compareCrowds(a, b crowdOf) int {
	return cmp.Or(cmp.Compare(a.host, b.host), cmp.Compare(a.user, b.user), cmp.Compare(a.rule, b.rule))
}
