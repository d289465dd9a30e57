package live

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// midnight is the beginning of a point.
var midnight = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)

// held is a GPU that a user holds in a state.
func held(state gpus.State, users ...snapshot.Username) gpus.GPU {
	g := gpus.GPU{State: state}
	for _, user := range users {
		g.Attached = append(g.Attached, gpus.Attachment{User: user})
		if state == gpus.Busy {
			g.Processes = append(g.Processes, gpus.Process{User: user})
		}
	}
	return g
}

// TestTrendOfAForgedAttachment: what mallory computes is not alice's GPU time.
func TestTrendOfAForgedAttachment(t *testing.T) {
	feed := NewFeed(Options{Now: time.Now})
	g := held(gpus.Busy, "mallory")
	g.Attached = append(g.Attached, gpus.Attachment{User: "alice"})
	feed.trends.samples(oneHost(g), midnight, 5)
	alice, _ := feed.UserTrend("alice")
	mallory, _ := feed.UserTrend("mallory")
	require.Zero(t, alice.Busy)
	require.Equal(t, 4*time.Minute, alice.Held)
	require.Equal(t, 4*time.Minute, mallory.Busy)
}

func oneHost(list ...gpus.GPU) *Fleet {
	for i := range list {
		list[i].Index = snapshot.DeviceIndex(i)
	}
	return &Fleet{Hosts: []Host{{Name: "a", GPUs: list}}}
}

func (t *trends) samples(f *Fleet, from time.Time, n int) time.Time {
	for range n {
		t.sample(f, from, 3*time.Minute)
		from = from.Add(time.Minute)
	}
	return from
}

func TestTrend(t *testing.T) {
	feed := NewFeed(Options{Now: time.Now})
	tr := &feed.trends
	busy := oneHost(held(gpus.Busy, "alice", "bob"), held(gpus.Attached, "alice"), held(gpus.Free), held(gpus.Unknown))
	now := tr.samples(busy, midnight, 5)
	failed := oneHost(held(gpus.Unknown))
	failed.Hosts[0].Failure = &remote.Failure{}
	now = tr.samples(failed, now, 5)
	now = tr.samples(oneHost(held(gpus.Free), held(gpus.Free)), now, 3)
	now = now.Add(20 * time.Minute) // no controller
	tr.samples(busy, now, 1)

	host, ok := feed.HostTrend("a")
	require.True(t, ok)
	require.Len(t, host.Points, trendPoints)
	require.Equal(t, midnight.Add(35*time.Minute), host.End.UTC())
	require.Equal(t, []Point{
		{}, {Known: true, Busy: 1, Held: 1, Free: 1, Unknown: 1}, {}, {Known: true, Free: 2}, {}, {}, {}, {Known: true, Busy: 1, Held: 1, Free: 1, Unknown: 1},
	}, host.Points[trendPoints-8:], "what is not known is no zero")

	alice, _ := feed.UserTrend("alice")
	require.Equal(t, []Point{
		{}, {Known: true, Busy: 1, Held: 1}, {}, {Known: true}, {}, {}, {}, {Known: true, Busy: 1, Held: 1},
	}, alice.Points[trendPoints-8:])
	require.Equal(t, 4*time.Minute, alice.Busy, "of five samples; what was before the first one is unknown, as what is in a gap")
	require.Equal(t, 4*time.Minute, alice.Held)
	require.Equal(t, midnight, alice.Since)
	_, ok = feed.UserTrend("carol")
	require.False(t, ok)
}

func TestTrendWrapsAndForgets(t *testing.T) {
	feed := NewFeed(Options{Now: time.Now})
	tr := &feed.trends
	tr.samples(oneHost(held(gpus.Busy, "alice")), midnight, 1)
	for i := range 2 * trendPoints {
		tr.samples(oneHost(held(gpus.Busy, "bob")), midnight.Add(time.Duration(i+1)*trendStep), 1)
	}
	_, ok := feed.UserTrend("alice")
	require.False(t, ok, "24 hours ago")
	bob, _ := feed.UserTrend("bob")
	for i, p := range bob.Points {
		require.Equal(t, Point{Known: true, Busy: 1}, p, i)
	}
	tr.samples(oneHost(held(gpus.Busy, "bob")), midnight, 1) // the clock was set back
	again, _ := feed.UserTrend("bob")
	require.Equal(t, bob.End, again.End)
	require.Equal(t, Point{Known: true, Busy: 1}, again.Points[trendPoints-1])
}

// TestTrendIsBounded: hosts make up users, long names and as many as they like.
func TestTrendIsBounded(t *testing.T) {
	feed := NewFeed(Options{Now: time.Now})
	tr := &feed.trends
	tr.samples(oneHost(held(gpus.Busy, "alice")), midnight, 1)
	for round := range 30 {
		var list []gpus.GPU
		for i := range 200 {
			list = append(list, held(gpus.Busy, snapshot.Username(fmt.Sprintf("made-up-%d-%d", round, i))))
		}
		long := held(gpus.Busy, snapshot.Username(make([]byte, 10<<10)))
		tr.samples(oneHost(append(list, held(gpus.Busy, "alice"), long)...), midnight.Add(time.Duration(round+1)*time.Minute), 1)
	}
	require.Len(t, tr.users, maxUsersPerHost)
	alice, _ := feed.UserTrend("alice")
	require.Equal(t, 30*time.Minute, alice.Busy)
}

// TestMadeUpUsersTakeNoPlaces of those on other hosts.
func TestMadeUpUsersTakeNoPlaces(t *testing.T) {
	feed := NewFeed(Options{Now: time.Now})
	var list []gpus.GPU
	for i := range 2 * maxUsers {
		list = append(list, held(gpus.Busy, snapshot.Username(fmt.Sprintf("made-up-%d", i))))
	}
	feed.trends.samples(oneHost(list...), midnight, 1)
	fleet := oneHost(list...)
	fleet.Hosts = append(fleet.Hosts, Host{Name: "honest", GPUs: []gpus.GPU{held(gpus.Busy, "bob")}})
	feed.trends.samples(fleet, midnight.Add(time.Minute), 1)
	_, known := feed.UserTrend("bob")
	require.True(t, known)
	later := midnight.Add(25 * time.Hour)
	feed.trends.samples(oneHost(held(gpus.Busy, "alice")), later, 1)
	require.Equal(t, 1, feed.trends.introduced["a"], "places are given back")
}

func TestIdleSince(t *testing.T) {
	feed := NewFeed(Options{Now: time.Now})
	tr, later := &feed.trends, midnight.Add(time.Minute)
	tr.samples(oneHost(held(gpus.Attached, "alice"), held(gpus.Idle, "bob"), held(gpus.Busy, "bob"), held(gpus.Free)), midnight, 1)
	tr.samples(oneHost(held(gpus.Idle, "alice"), held(gpus.Idle, "alice"), held(gpus.Busy, "bob"), held(gpus.Free)), later, 1)
	require.Equal(t, midnight, feed.IdleSince("a", 0))
	require.Equal(t, later, feed.IdleSince("a", 1), "of another user")
	require.Zero(t, feed.IdleSince("a", 2))
	require.Zero(t, feed.IdleSince("a", 3))
	tr.samples(oneHost(held(gpus.Busy, "alice")), later.Add(time.Minute), 1)
	require.Zero(t, feed.IdleSince("a", 0))
}

func BenchmarkSample(b *testing.B) {
	f := &Fleet{}
	for i := range 1000 {
		h := Host{Name: snapshot.Hostname(fmt.Sprintf("gpu-%d", i))}
		for j := range 8 {
			g := held(gpus.Busy, snapshot.Username(fmt.Sprintf("user-%d", (i+j)%300)))
			g.Index = snapshot.DeviceIndex(j)
			h.GPUs = append(h.GPUs, g)
		}
		f.Hosts = append(f.Hosts, h)
	}
	var tr trends
	now := midnight
	for b.Loop() {
		now = now.Add(time.Minute)
		tr.sample(f, now, 3*time.Minute)
	}
}
