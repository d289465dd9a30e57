package enforce

import (
	"time"

	"github.com/seed-3119e985/genv/enforce/holdings"
	"github.com/seed-3119e985/genv/snapshot"
)

// Shard is the part of a fleet of which one of several controllers judges the hosts.
type Shard struct {
	// Order is the place of each host in the whole fleet, which must be the same for all
	// controllers: of what costs a user the same, the first host's goes first. A host that is
	// missing here sorts first, with place 0.
	Order map[snapshot.Hostname]int
	// Decision is what holdings.Decide made of what users hold in all shards. Without one
	// nothing is decided about caps: no cap takes anything, and what is known stays.
	Decision *holdings.Decision
}

// JudgeShard is Judge for the hosts of one shard. It also returns what users with caps hold there,
// never nil, to be passed to holdings.Decide.
func JudgeShard(policy Policy, cluster snapshot.Cluster, memory Memory, now time.Time, shard Shard) (Plan, Memory, []Event, *holdings.Shard) {
	j := newJudgement(policy, cluster, memory, now, &shard)
	plan, next, events := j.judge(cluster)
	return plan, next, events, j.holdings
}

// order is the place of a host in the fleet; of the whole fleet, its index.
func (s *Shard) order(host snapshot.Hostname, index int) int {
	if s != nil && s.Order != nil {
		return s.Order[host]
	}
	return index
}
