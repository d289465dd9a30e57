package caps

import (
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/judging"
	"github.com/seed-3119e985/genv/snapshot"
)

// countHours adds the time since the last look at each host, if it is known what was there in between: that look is at
// most three intervals older. A period that has begun doesn't begin again, whatever the clock says.
func (c *counting) countHours(listed *enforce.Cap) {
	hours := c.Before.Hours[listed.ID]
	if listed.Period.After(hours.Period) {
		hours = enforce.Hours{Period: listed.Period}
	}
	seconds := make(map[snapshot.Username]float64, len(hours.Seconds))
	maps.Copy(seconds, hours.Seconds)
	hours.Seconds = seconds
	for _, u := range c.inOrder {
		if listed.Member(u.user) == enforce.NotMember { // anyone who may be one is counted
			continue
		}
		on := capOn{counting: c, Cap: listed, people: []*held{u}}
		for _, d := range Once(slices.Clone(on.devicesOf(u))) {
			hours.Seconds[u.user] += c.gap(d.Host).Seconds()
		}
	}
	if c.Next.Hours == nil {
		c.Next.Hours = make(map[string]enforce.Hours)
	}
	c.Next.Hours[listed.ID] = hours
}

// gap is the time since the last look at a host that counts; 0 if the look is old, or the one before too long ago.
func (c *counting) gap(h *judging.HostView) time.Duration {
	last := c.LastLook(h)
	if d := h.At.Sub(last); h.IsNew && !last.IsZero() && d > 0 && d <= 3*c.Fleet.Interval {
		return d
	}
	return 0
}

// spent is for how many seconds people had GPUs in this period.
func (c *counting) spent(listed *enforce.Cap, people []*held) int64 {
	seconds := 0.0
	for _, u := range people {
		seconds += c.Next.Hours[listed.ID].Seconds[u.user]
	}
	if listed.Together { // also of those who have nothing now
		seconds = 0
		for user, n := range c.Next.Hours[listed.ID].Seconds {
			if listed.Member(user) == enforce.Member {
				seconds += n
			}
		}
	}
	return int64(seconds)
}
