package metrics

import (
	"time"

	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/snapshot"
)

// Other is the label of the users beyond the bounds together.
const Other = string(usage.Other)

// gpuTime is for how long GPUs were attached to each user.
type gpuTime struct {
	names    *usage.Names       // bounded: each name would stay in Prometheus for weeks
	seconds  map[string]float64 // by label
	holdings map[snapshot.Hostname]holding
}

// holding is what users had attached when a host answered last.
type holding struct {
	at       time.Time
	snapshot *snapshot.Snapshot
	devices  map[string]int // by label
}

func newGPUTime() gpuTime { return gpuTime{names: usage.NewNames(), seconds: make(map[string]float64)} }

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
			last.snapshot, last.devices = h.Snapshot, g.names.Attached(h.Name, h.Snapshot)
			for label := range last.devices {
				g.seconds[label] += 0
			}
		}
		last.at = cycle.Start
		holdings[h.Name] = last
	}
	g.holdings = holdings
}

// labelled are the users with their labels; those with the same one are summed up. A user
// who never had a device attached has none.
func (g *gpuTime) labelled(users []live.FleetUser) (labels []string, sums []live.FleetUser) {
	at := make(map[string]int, len(users))
	_, full := g.seconds[Other]
	for i := range users {
		label, counted := g.names.Label(users[i].Name)
		if !counted && !full {
			continue
		}
		if !counted {
			label = Other
		}
		if _, seen := at[label]; !seen {
			at[label] = len(labels)
			labels, sums = append(labels, label), append(sums, live.FleetUser{})
		}
		sum := &sums[at[label]]
		sum.Attached += users[i].Attached
		sum.Idle += users[i].Idle
	}
	return labels, sums
}
