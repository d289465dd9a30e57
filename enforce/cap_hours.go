package enforce

import (
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/caps"
	"github.com/seed-3119e985/genv/snapshot"
)

// countHours adds the time since the last look at each host, if it is known what was there in between: that look is at
// most three intervals older. A period that has begun doesn't begin again, whatever the clock says.
func (c *counting) countHours(listed *Cap) {
	hours := c.before.Hours[listed.ID]
	if listed.Period.After(hours.Period) {
		hours = Hours{Period: listed.Period}
	}
	seconds := make(map[snapshot.Username]float64, len(hours.Seconds))
	maps.Copy(seconds, hours.Seconds)
	hours.Seconds = seconds
	for _, u := range c.inOrder {
		if listed.Member(u.user) == NotMember { // anyone who may be one is counted
			continue
		}
		on := capOn{counting: c, Cap: listed, people: []*held{u}}
		for _, d := range caps.Once(slices.Clone(on.devicesOf(u))) {
			hours.Seconds[u.user] += c.gap(hostOf(d)).Seconds()
		}
	}
	if c.next.Hours == nil {
		c.next.Hours = make(map[string]Hours)
	}
	c.next.Hours[listed.ID] = hours
}

// gap is the time since the last look at a host that counts; 0 if the look is old, or the one before too long ago.
func (c *counting) gap(h *hostView) time.Duration {
	last := c.lastLook(h)
	if d := h.at.Sub(last); h.isNew && !last.IsZero() && d > 0 && d <= 3*c.fleet.Interval {
		return d
	}
	return 0
}

// spent is for how many seconds people had GPUs in this period.
func (c *counting) spent(listed *Cap, people []*held) int64 {
	seconds := 0.0
	for _, u := range people {
		seconds += c.next.Hours[listed.ID].Seconds[u.user]
	}
	if listed.Together { // also of those who have nothing now
		seconds = 0
		for user, n := range c.next.Hours[listed.ID].Seconds {
			if listed.Member(user) == Member {
				seconds += n
			}
		}
	}
	return int64(seconds)
}
