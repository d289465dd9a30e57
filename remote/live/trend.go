package live

import (
	"fmt"
	"math"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// Bounds of the trends: a host or a user takes 3 KB.
const (
	trendStep   = 5 * time.Minute
	trendPoints = 288 // 24 hours
	sampleEvery = time.Minute
	// maxUsers is of how many users a trend is kept, and maxUsersPerHost how many of them a
	// host may be the first to have: it may make up as many users as it likes.
	maxUsers        = 4096
	maxUsersPerHost = 256
)

// Trend is how many GPUs were used in the last 24 hours.
type Trend struct {
	Points []Point       // the oldest first
	End    time.Time     // of the last point
	Step   time.Duration // of a point
	// Since is when the controller began to look. Busy and Held are GPU time since then:
	// of GPUs in use, and of those that were attached or held and computed nothing.
	Since      time.Time
	Busy, Held time.Duration
}

// Point is an average. It isn't Known while no controller ran or the host failed.
type Point struct {
	Known                     bool
	Busy, Held, Free, Unknown float64 // GPUs; of a user Busy and Held only
}

// tally counts GPUs.
type tally struct{ busy, held, free, unknown uint16 }

// sum is of the tallies of a point.
type sum struct {
	count uint16
	tally
}

func (s *sum) add(t tally) {
	add := func(a *uint16, b uint16) { *a = uint16(min(uint32(*a)+uint32(b), math.MaxUint16)) }
	add(&s.count, 1)
	add(&s.busy, t.busy)
	add(&s.held, t.held)
	add(&s.free, t.free)
	add(&s.unknown, t.unknown)
}

// userTally counts the GPUs of a user.
type userTally struct {
	tally
	host snapshot.Hostname // on which the user was seen first
}

// series are the points of a host or a user in a ring.
type series struct {
	host       snapshot.Hostname // on which the user was seen first
	last       int64             // the number of the newest point since 1970
	ring       [trendPoints]sum
	busy, held time.Duration
}

// at is the newest point, after empty ones for the time in which nothing was added.
func (s *series) at(point int64) *sum {
	for p := max(s.last+1, point-trendPoints+1); p <= point; p++ {
		s.ring[p%trendPoints] = sum{}
	}
	s.last = max(s.last, point)
	return &s.ring[s.last%trendPoints]
}

// idle is since when a GPU computes nothing, for the same users.
type idle struct {
	users string
	since time.Time
}

// trends are the last 24 hours, sampled once a minute.
type trends struct {
	sampled time.Time // last
	since   time.Time // first
	ran     series    // counts the samples
	hosts   map[snapshot.Hostname]*series
	users   map[snapshot.Username]*series
	idle    map[gpuKey]idle
	// introduced is how many of the users each host was the first to have.
	introduced map[snapshot.Hostname]int
}

type gpuKey struct {
	host  snapshot.Hostname
	index snapshot.DeviceIndex
}

// due reports whether it is time for a sample.
func (t *trends) due(now time.Time) bool {
	return t.sampled.IsZero() || now.Before(t.sampled) || now.Sub(t.sampled) >= sampleEvery
}

// sample adds the present state. longest is the time between two samples that is not
// a gap.
func (t *trends) sample(f *Fleet, now time.Time, longest time.Duration) {
	if t.hosts == nil {
		t.hosts, t.users, t.since = make(map[snapshot.Hostname]*series), make(map[snapshot.Username]*series), now
		t.introduced = make(map[snapshot.Hostname]int)
	}
	point, passed := now.Unix()/int64(trendStep/time.Second), now.Sub(t.sampled)
	if t.sampled.IsZero() || passed < 0 || passed > longest {
		passed = 0
	}
	if point > t.ran.last {
		t.forget(point)
	}
	t.sampled = now
	users, idles, answered := make(map[snapshot.Username]*userTally), make(map[gpuKey]idle), false
	for i := range f.Hosts {
		h := &f.Hosts[i]
		if h.Failure != nil {
			continue
		}
		answered = true
		t.hosts[h.Name] = t.hosts[h.Name].added(point, count(h, users), passed)
		t.stillIdle(h, now, idles)
	}
	t.idle = idles
	if ran := t.ran.at(point); answered {
		ran.add(tally{})
	}
	t.addUsers(users, point, passed)
}

// added is the series, or a first one, with a tally more.
func (s *series) added(point int64, t tally, passed time.Duration) *series {
	if s == nil {
		s = &series{last: point - trendPoints}
	}
	s.at(point).add(t)
	s.busy += time.Duration(t.busy) * passed
	s.held += time.Duration(t.held) * passed
	return s
}

func (t *trends) addUsers(users map[snapshot.Username]*userTally, point int64, passed time.Duration) {
	for name, u := range users {
		known := t.users[name]
		if known == nil && (len(t.users) >= maxUsers || t.introduced[u.host] >= maxUsersPerHost) {
			continue
		}
		t.users[name] = known.added(point, u.tally, passed)
		if known == nil {
			t.users[name].host = u.host
			t.introduced[u.host]++
		}
	}
}

// forget removes those of whom nothing was seen for 24 hours.
func (t *trends) forget(point int64) {
	for name, s := range t.hosts {
		if s.last <= point-trendPoints {
			delete(t.hosts, name)
		}
	}
	for name, s := range t.users {
		if s.last <= point-trendPoints {
			delete(t.users, name)
			t.introduced[s.host]--
		}
	}
}

// count counts the GPUs of a host, and of each of its users.
func count(h *Host, users map[snapshot.Username]*userTally) tally {
	var counts gpus.StateCounts
	counts.Add(h.GPUs...)
	for i := range h.GPUs {
		g := &h.GPUs[i]
		using := make(map[snapshot.Username]bool) // an attachment is a claim, which others may have made
		for j := range g.Processes {
			using[g.Processes[j].User] = true
		}
		for _, name := range g.Users() {
			if len(name) > maxUserName {
				continue
			}
			if users[name] == nil {
				users[name] = &userTally{host: h.Name}
			}
			if g.State == gpus.Busy && using[name] {
				users[name].busy++
			} else {
				users[name].held++
			}
		}
	}
	return tally{uint16(counts.Busy), uint16(counts.Held()), uint16(counts.Free), uint16(counts.Unknown + counts.Failed)} //nolint:gosec // a host has fewer
}

// maxUserName is the longest name in bytes that a trend is kept for.
const maxUserName = 256

// stillIdle adds the GPUs of a host that compute nothing.
func (t *trends) stillIdle(h *Host, now time.Time, idles map[gpuKey]idle) {
	for i := range h.GPUs {
		g, key := &h.GPUs[i], gpuKey{h.Name, h.GPUs[i].Index}
		if g.State != gpus.Attached && g.State != gpus.Idle {
			continue
		}
		users := fmt.Sprintf("%q", g.Users())
		idles[key] = idle{users, now}
		if before := t.idle[key]; !before.since.IsZero() && before.users == users {
			idles[key] = before
		}
	}
}

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
