package metrics

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Bounds of the users with series of their own. Hosts, and users who write to state files,
// can make names up, and each would stay in Prometheus for weeks.
const (
	maxUsers        = 20_000
	maxUsersPerHost = 256 // that a host is the first to have
	maxName         = 64  // bytes
)

// Other is the label of the users beyond the bounds together.
const Other = "(other)"

// gpuTime is for how long GPUs were attached to each user.
type gpuTime struct {
	seconds    map[string]float64        // by label
	introduced map[snapshot.Hostname]int // users of which a host was the first to have them
	holdings   map[snapshot.Hostname]holding
}

// holding is what users had attached when a host answered last.
type holding struct {
	at       time.Time
	snapshot *snapshot.Snapshot
	devices  map[string]int // by label
}

func newGPUTime() gpuTime {
	return gpuTime{
		seconds: make(map[string]float64), introduced: make(map[snapshot.Hostname]int),
		holdings: make(map[snapshot.Hostname]holding),
	}
}

// take counts the time since each host answered last, with what was attached then. Nothing
// is known about a time longer than maxGap.
func (g *gpuTime) take(cycle *controller.Cycle, maxGap time.Duration) {
	holdings := make(map[snapshot.Hostname]holding, len(cycle.Cluster.Hosts))
	for i := range cycle.Cluster.Hosts {
		h := &cycle.Cluster.Hosts[i]
		last, known := g.holdings[h.Name]
		if h.Err != nil || h.Snapshot == nil {
			if known {
				holdings[h.Name] = last
			}
			continue
		}
		if gap := cycle.Start.Sub(last.at); known && gap > 0 && gap <= maxGap {
			for label, count := range last.devices {
				g.seconds[label] += gap.Seconds() * float64(count)
			}
		}
		if h.Snapshot != last.snapshot { // a host that hasn't changed answers with the same one
			last.snapshot, last.devices = h.Snapshot, g.devices(h.Name, h.Snapshot)
		}
		last.at = cycle.Start
		holdings[h.Name] = last
	}
	g.holdings = holdings
}

func (g *gpuTime) devices(host snapshot.Hostname, s *snapshot.Snapshot) map[string]int {
	counts := make(map[string]int)
	users := make(map[snapshot.EnvID]snapshot.Username, len(s.Environments))
	for i := range s.Environments {
		e := &s.Environments[i]
		users[e.EID] = gpus.UserName(e.Username, &e.UID)
	}
	var here []string // the users of one device
	for i := range s.Devices {
		here = here[:0]
		for _, a := range s.Devices[i].Attachments {
			user := users[a.EID]
			if user == "" {
				continue
			}
			if label := g.admit(host, user); !slices.Contains(here, label) {
				here = append(here, label)
			}
		}
		for _, label := range here {
			counts[label]++
		}
	}
	return counts
}

// cut is a name as a label: two that differ only in what is lost are one.
func cut(name string) string {
	if len(name) <= maxName && utf8.ValidString(name) {
		return name
	}
	return text.Cut(strings.ToValidUTF8(name, unreadable), maxName)
}

// admit is the label of a user, who gets a series if there may be one more.
func (g *gpuTime) admit(host snapshot.Hostname, user snapshot.Username) string {
	label := cut(string(user))
	if _, known := g.seconds[label]; known {
		return label
	}
	if len(g.seconds) >= maxUsers || g.introduced[host] >= maxUsersPerHost {
		label = Other
	} else {
		g.introduced[host]++
	}
	g.seconds[label] += 0
	return label
}

// labelled are the users with their labels; those with the same one are summed up. A user
// who never had a device attached has none.
func (g *gpuTime) labelled(users []live.User) (labels []string, sums []live.User) {
	at := make(map[string]int, len(users))
	_, full := g.seconds[Other]
	for i := range users {
		label := cut(string(users[i].Name))
		if _, known := g.seconds[label]; !known {
			if !full {
				continue
			}
			label = Other
		}
		if _, seen := at[label]; !seen {
			at[label] = len(labels)
			labels, sums = append(labels, label), append(sums, live.User{})
		}
		sum := &sums[at[label]]
		sum.Attached += users[i].Attached
		sum.Idle += users[i].Idle
	}
	return labels, sums
}
