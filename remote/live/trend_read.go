package live

import (
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// HostTrend implements Source.
func (f *Feed) HostTrend(host snapshot.Hostname) (Trend, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.trends.hosts[host]
	return f.trends.trend(s, s), s != nil
}

// UserTrend implements Source. Where the user had no GPU, but a host answered, it is zero.
func (f *Feed) UserTrend(user snapshot.Username) (Trend, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.trends.users[user]
	return f.trends.trend(s, &f.trends.ran), s != nil
}

// IdleSince implements Source.
func (f *Feed) IdleSince(host snapshot.Hostname, gpu snapshot.DeviceIndex) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.trends.idle[gpuKey{host, gpu}].since
}

// trend is a series with averages over the samples that samples counts.
func (t *trends) trend(s, samples *series) Trend {
	if s == nil {
		return Trend{}
	}
	last := t.ran.last
	trend := Trend{
		Points: make([]Point, trendPoints), Step: trendStep, End: time.Unix((last+1)*int64(trendStep/time.Second), 0),
		Since: t.since, Busy: s.busy, Held: s.held,
	}
	for i := range trend.Points {
		number := last - trendPoints + 1 + int64(i)
		n := float64(samples.get(number).count)
		if n == 0 {
			continue
		}
		sum := s.get(number)
		trend.Points[i] = Point{true, float64(sum.busy) / n, float64(sum.held) / n, float64(sum.free) / n, float64(sum.unknown) / n}
	}
	return trend
}

// get is a point; empty if it is older or newer than what is kept.
func (s *series) get(number int64) sum {
	if number > s.last || number <= s.last-trendPoints || number < 0 {
		return sum{}
	}
	return s.ring[number%trendPoints]
}
