package fairshare

import (
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// Memory is what is known from cycle to cycle. It is a value, and as JSON it can be kept. The zero
// Memory gives no user a boost.
type Memory struct {
	// Enough is since when enough devices are free, without a break; zero for not.
	Enough time.Time `json:"enough_since,omitzero"`
	// Free says that the fleet is free, so that light users have a boost.
	Free bool `json:"free,omitempty"`
	// Light are the users under an equal share who are on the fleet, and Usage is as of when.
	Light map[snapshot.Username]bool `json:"light,omitempty"`
	Usage time.Time                  `json:"usage,omitzero"`
}

// settleFor is for how long enough devices must be free until the fleet counts as free.
const settleFor = 30 * time.Minute

// Next is the memory of the cycle after m. Without a Boost it is the zero Memory.
func Next(s Setting, u Usage, c snapshot.Cluster, m Memory, now time.Time) Memory {
	if s.Boost <= 0 {
		return Memory{}
	}
	next := Memory{Enough: m.Enough, Free: m.Free}
	if free, total, known := count(c); known {
		next.Enough, next.Free = settle(s, free, total, m, now)
	}
	next.Light, next.Usage = light(&u, c, m, now)
	return next
}

// settle says since when the fleet has enough free devices, and whether it counts as free: from
// when it had them for a while until less than half as many are free.
func settle(s Setting, free, total int, m Memory, now time.Time) (enough time.Time, isFree bool) {
	switch {
	case total == 0 || 200*free < s.Free*total || free == 0:
		return time.Time{}, false
	case m.Free:
		return m.Enough, true
	case 100*free < s.Free*total:
		return time.Time{}, false
	case m.Enough.IsZero() || m.Enough.After(now):
		return now, false
	}
	return m.Enough, now.Sub(m.Enough) >= settleFor
}

// count counts the devices of the hosts that answered, and those that no user has. It is not
// known if most hosts did not answer.
func count(c snapshot.Cluster) (free, total int, known bool) {
	answered := 0
	for i := range c.Hosts {
		s := c.Hosts[i].Snapshot
		if s == nil {
			continue
		}
		answered++
		used := make(map[snapshot.DeviceIndex]bool)
		for j := range s.Processes {
			for _, usage := range s.Processes[j].Usage {
				used[usage.Index] = true
			}
		}
		total += len(s.Devices)
		for j := range s.Devices {
			if d := &s.Devices[j]; len(d.Attachments) == 0 && !used[d.Index] {
				free++
			}
		}
	}
	return free, total, 2*answered > len(c.Hosts)
}

// maxUsers bounds the memory: hosts can make names up.
const maxUsers = 20_000

// light are the users of a cluster who had less than an equal share. While usage isn't known
// they are those of before, until that is too old.
func light(u *Usage, c snapshot.Cluster, m Memory, now time.Time) (map[snapshot.Username]bool, time.Time) {
	if !u.known(now) {
		if age := now.Sub(m.Usage); age > mostAge || age < -mostAge {
			return nil, time.Time{}
		}
		return m.Light, m.Usage
	}
	equal, list, missing := u.equal(), make(map[snapshot.Username]bool), false
	for i := range c.Hosts {
		if c.Hosts[i].Snapshot == nil {
			missing = true
			continue
		}
		for j := range c.Hosts[i].Snapshot.Environments {
			user := c.Hosts[i].Snapshot.Environments[j].Username
			if user != "" && len(list) < maxUsers && u.light(user, equal, m.Light[user]) {
				list[user] = true
			}
		}
	}
	for user := range m.Light {
		if missing && len(list) < maxUsers && u.light(user, equal, true) { // maybe of a host that did not answer now
			list[user] = true
		}
	}
	return list, u.Until
}

// Boosted are the users who may have more than their cap, sorted.
func (m Memory) Boosted() []snapshot.Username {
	if !m.Free {
		return nil
	}
	return slices.Sorted(maps.Keys(m.Light))
}

// boosts reports whether a user may have more than the cap.
func (m Memory) boosts(user snapshot.Username) bool { return m.Free && m.Light[user] }
