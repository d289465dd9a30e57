package policy

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Override is settings for some hosts, users and times. All that it names must
// match: one of the hosts, every label, one of the users, and the schedule.
type Override struct {
	Hosts  []text.HostPattern // none for every host
	Labels map[string]string
	// Users are named one by one, Members by their groups. If both are empty, it is
	// every user.
	Users   []string
	Members []string
	When    *Schedule // nil for always
	Set     Settings
	Place   strictyaml.Place

	// The hosts and users as they are written in the file.
	writtenHosts, writtenUsers []string
}

// matches says whether the override applies to a query, and how specific it is.
func (o *Override) matches(q enforce.Query) (rank, bool) {
	var r rank
	if len(o.Users)+len(o.Members) > 0 {
		switch user := string(q.User); {
		case slices.Contains(o.Users, user):
			r.user = 2
		case slices.Contains(o.Members, user):
			r.user = 1
		default:
			return rank{}, false
		}
	}
	if len(o.Hosts) > 0 {
		if r.host = hostRank(o.Hosts, string(q.Host)); r.host == 0 {
			return rank{}, false
		}
	}
	for key, value := range o.Labels {
		if has, ok := q.Labels[key]; !ok || has != value {
			return rank{}, false
		}
	}
	r.labels = len(o.Labels)
	if o.When != nil {
		if !o.When.Contains(q.At) {
			return rank{}, false
		}
		r.time = 1
	}
	return r, true
}

// hostRank is 2 for a name, 1 for a pattern with ranges, 0 for neither.
func hostRank(patterns []text.HostPattern, host string) int {
	best := 0
	for _, p := range patterns {
		switch {
		case !p.Matches(host):
		case p.Count() == 1:
			return 2
		default:
			best = 1
		}
	}
	return best
}

// String describes what the override is for.
func (o *Override) String() string {
	var parts []string
	add := func(name string, words ...string) {
		if len(words) > 0 {
			parts = append(parts, name+" "+strings.Join(words, ", "))
		}
	}
	add("users", o.writtenUsers...)
	add("hosts", o.writtenHosts...)
	var labels []string
	for _, key := range slices.Sorted(maps.Keys(o.Labels)) {
		labels = append(labels, key+"="+o.Labels[key])
	}
	add("labels", labels...)
	if o.When != nil {
		add("schedule", o.When.Name)
	}
	return "override for " + strings.Join(parts, "; ")
}

// rank is how specific an override is; the higher one wins.
type rank struct{ user, host, labels, time int }

func (r rank) compare(other rank) int {
	return cmp.Or(cmp.Compare(r.user, other.user), cmp.Compare(r.host, other.host),
		cmp.Compare(r.labels, other.labels), cmp.Compare(r.time, other.time))
}
