package replay

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote/recording"
	"github.com/seed-3119e985/genv/snapshot"
)

// Add adds the result of another recording of the same time.
func (r *Result) Add(other *Result) {
	if r.From.IsZero() || !other.From.IsZero() && other.From.Before(r.From) {
		r.From = other.From
	}
	if other.To.After(r.To) {
		r.To = other.To
	}
	r.Judgements, r.Early, r.Different = r.Judgements+other.Judgements, r.Early+other.Early, r.Different+other.Different
	r.DryRun, r.Restarts, r.Left = r.DryRun+other.DryRun, r.Restarts+other.Restarts, r.Left+other.Left
	r.Guard, r.FairShare = r.Guard || other.Guard, r.FairShare || other.FairShare
	for _, p := range other.Policies {
		if !slices.ContainsFunc(r.Policies, func(known *recording.Policy) bool { return known.Digest == p.Digest }) {
			r.Policies = append(r.Policies, p)
		}
	}
	r.Gaps = append(r.Gaps, other.Gaps...)
	if r.Silent == nil {
		r.Silent, r.Was, r.Would = make(map[snapshot.Hostname]time.Duration), make(map[Key]Counts), make(map[Key]Counts)
	}
	for host, d := range other.Silent {
		r.Silent[host] += d
	}
	addCounts(r.Was, other.Was)
	addCounts(r.Would, other.Would)
	r.WasTotal.Add(&other.WasTotal)
	r.WouldTotal.Add(&other.WouldTotal)
	r.Begin, r.End = sorted(append(r.Begin, other.Begin...)), sorted(append(r.End, other.End...))
}

func addCounts(to, more map[Key]Counts) {
	for key, c := range more {
		sum := to[key]
		sum.Add(&c)
		to[key] = sum
	}
}

// Add adds other counts.
func (c *Counts) Add(more *Counts) {
	c.Found += more.Found
	c.Warned += more.Warned
	c.Held += more.Held
	c.Terminated += more.Terminated
	c.Detached += more.Detached
}

// sorted sorts cases by when they began.
func sorted(list []Case) []Case {
	slices.SortStableFunc(list, func(a, b Case) int { return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.ID, b.ID)) })
	return list
}
