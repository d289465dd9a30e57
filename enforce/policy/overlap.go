package policy

import (
	"maps"
	"slices"

	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// checkOverlaps refuses two overrides with schedules that would both apply at some
// time, for the same host and user, equally specific, with a value for the same
// setting: a setting would change in the middle of its scheduled hours.
func (r *reader) checkOverlaps(n *strictyaml.Node) {
	i := 0
	n.List(func(item *strictyaml.Node) {
		later := &r.file.Overrides[i]
		for j := range i {
			earlier := &r.file.Overrides[j]
			if minute, key, both := clash(earlier, later); both {
				item.Failf("on %s both schedule %s here and schedule %s at %s set %s for the same hosts and users; write hours that do not overlap",
					clock(minute), later.When.Name, earlier.When.Name, earlier.Place, key)
				break
			}
		}
		i++
	})
}

// clash is the first minute at which two equally specific overrides both apply,
// and a setting that both have.
func clash(a, b *Override) (minute int, key string, both bool) {
	if a.When == nil || b.When == nil || !maps.Equal(a.Labels, b.Labels) || !sameUsers(a, b) || !sameHosts(a.Hosts, b.Hosts) {
		return 0, "", false
	}
	if minute, both = common(a.When.spans, b.When.spans); !both {
		return 0, "", false
	}
	for _, f := range fields {
		if f.isSet(&a.Set) && f.isSet(&b.Set) {
			return minute, f.key, true
		}
	}
	return 0, "", false
}

// sameUsers says whether both select a user in the same way: by name, or only by
// a group.
func sameUsers(a, b *Override) bool {
	if len(a.writtenUsers) == 0 || len(b.writtenUsers) == 0 {
		return len(a.writtenUsers) == len(b.writtenUsers)
	}
	if slices.ContainsFunc(a.Users, func(u string) bool { return slices.Contains(b.Users, u) }) {
		return true
	}
	return slices.ContainsFunc(a.Members, func(u string) bool {
		return slices.Contains(b.Members, u) && !slices.Contains(a.Users, u) && !slices.Contains(b.Users, u)
	})
}

// sameHosts says whether both select a host in the same way: by name, or by a
// pattern.
func sameHosts(a, b []text.HostPattern) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	for _, p := range a {
		for _, name := range p.Expand() {
			if rank := hostRank(b, name); rank > 0 && rank == hostRank(a, name) {
				return true
			}
		}
	}
	return false
}
