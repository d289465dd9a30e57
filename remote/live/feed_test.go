package live_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// stage is a feed, and the fleet that its cycles see.
type stage struct {
	*live.Feed
	now   time.Time
	round controller.Round
}

func newStage(hosts ...snapshot.Host) *stage {
	s := &stage{now: time.Unix(1_800_000_000, 0)}
	s.round = controller.Round{Run: "r", Cluster: snapshot.Cluster{Hosts: hosts}}
	s.Feed = live.NewFeed(live.Options{Now: func() time.Time { return s.now }, Interval: 10 * time.Second, Enforcing: true})
	return s
}

// run is a cycle with what changed, and the state after it.
func (s *stage) run(change func(*controller.Round), events ...enforce.Event) *live.FleetState {
	s.now = s.now.Add(10 * time.Second)
	s.round.Number++
	s.round.Start, s.round.Took = s.now, 0
	s.round.Cluster.Hosts = slices.Clone(s.round.Cluster.Hosts)
	if change != nil {
		change(&s.round)
	}
	s.Consume(&s.round, events)
	s.round.Took = time.Second
	s.Consume(s.round.AtEnd(), nil)
	return s.Fleet()
}

// answered is a host with a GPU that a user is attached to and uses, and a free one.
func answered(name snapshot.Hostname, user snapshot.Username) snapshot.Host {
	return snapshot.Host{Name: name, Snapshot: &snapshot.Snapshot{
		Environments: []snapshot.Environment{{EID: "7", UID: 1001, Username: user}},
		Devices:      []snapshot.Device{{Index: 0, UUID: "GPU-0", Name: "H100", UsedMemory: snapshot.MiB(3), Attachments: []snapshot.Attachment{{EID: "7"}}}, {Index: 1, UUID: "GPU-1", Name: "H100", UsedMemory: snapshot.MiB(3)}},
		Processes:    []snapshot.Process{{PID: 9, Username: user, Usage: []snapshot.DeviceUsage{{Index: 0, Memory: snapshot.MiB(5)}}}},
		Warnings:     []string{"a warning"},
	}}
}

var errDown = &remote.Error{Class: remote.Unreachable, Err: errors.New("connection refused")}

func failed(name snapshot.Hostname) snapshot.Host { return snapshot.Host{Name: name, Err: errDown} }

func statesOf(h live.FleetHost) (list []gpus.State) {
	for i := range h.GPUs {
		list = append(list, h.GPUs[i].State)
	}
	return list
}

// TestAReservationBeginsAndEnds: also on a host of which nothing else changes.
func TestAReservationBeginsAndEnds(t *testing.T) {
	h := answered("a", "alice")
	s := newStage(h)
	h.Snapshot.Reservations = []snapshot.Reservation{{ID: "1", Username: "bob", GPUs: 2, From: s.now.Add(15 * time.Second), Until: s.now.Add(25 * time.Second)}}
	h.Snapshot.Waits = []snapshot.Wait{{Username: "carol", GPUs: 1, Seconds: 30}, {UID: 7, GPUs: 2, Seconds: 90}}
	for i, want := range []int{0, 2, 0} {
		f := s.run(nil)
		require.Equal(t, want, *f.Hosts[0].Reserved, i)
		require.Len(t, f.Hosts[0].Reservations, []int{1, 1, 0}[i])
		require.Equal(t, f.Revision, f.Hosts[0].Changed, "the reservation has")
		require.Equal(t, &live.Waiting{Commands: 2, GPUs: 3, Longest: 60, People: []live.WaitingPerson{{User: "uid 7", GPUs: 2, Seconds: 60}, {User: "carol", GPUs: 1}}}, f.Hosts[0].Waiting)
		require.Equal(t, []live.WaitingPerson{{GPUs: 2, Seconds: 60}, {User: "carol", GPUs: 1}}, s.For("carol").Fleet().Hosts[0].Waiting.People)
	}
}

func TestBeforeTheFirstCycle(t *testing.T) {
	f := newStage().Fleet()
	require.Equal(t, "genv.live.fleet/1", f.Schema)
	require.Zero(t, f.Cycle)
	require.NotContains(t, string(proctest.Try(json.Marshal(f)).OK(t)), "null")
}

// TestAFailedHost is failed, and not free; what is known of it is how old.
func TestAFailedHost(t *testing.T) {
	s := newStage(answered("a", "alice"), failed("b"))
	f := s.run(nil)
	seen := s.now
	require.Equal(t, []gpus.State{gpus.Busy, gpus.Free}, statesOf(f.Hosts[0]))
	require.Equal(t, seen, f.Hosts[0].Seen)
	require.Nil(t, f.Hosts[0].Failure)
	require.Zero(t, f.Hosts[1].Seen, "it never answered")
	require.Empty(t, f.Hosts[1].GPUs)
	require.Equal(t, remote.Unreachable, f.Hosts[1].Failure.Class)

	for range 3 {
		f = s.run(func(c *controller.Round) { c.Cluster.Hosts[0] = failed("a") })
		lost := f.Hosts[0]
		require.Equal(t, seen, lost.Seen)
		require.Equal(t, "connection refused", lost.Failure.Error)
		require.NotEmpty(t, lost.Failure.NextStep)
		require.Equal(t, []gpus.State{gpus.Unknown, gpus.Unknown}, statesOf(lost))
		require.Equal(t, "H100", lost.GPUs[0].Model)
		require.Empty(t, lost.GPUs[0].Attached)
		require.Empty(t, lost.GPUs[0].Processes)
		require.Empty(t, f.Users, "nothing is said about attachments")
		require.Len(t, f.Failed, 2)
		require.Zero(t, f.AllGPUs().Free)
	}
	f = s.run(func(c *controller.Round) { c.Cluster.Hosts[0] = answered("a", "alice") })
	require.Equal(t, []gpus.State{gpus.Busy, gpus.Free}, statesOf(f.Hosts[0]))
	require.Equal(t, s.now, f.Hosts[0].Seen)
	require.Len(t, f.Failed, 1)
}

// TestWhatIsTheSame is derived once, and known by the revision in which it changed.
func TestWhatIsTheSame(t *testing.T) {
	s := newStage(answered("a", "alice"), answered("b", "bob"), failed("c"))
	first := s.run(nil)
	second := s.run(func(c *controller.Round) { c.Cluster.Hosts[1] = answered("b", "bob") })
	require.Same(t, &first.Hosts[0].GPUs[0], &second.Hosts[0].GPUs[0])
	require.Equal(t, first.Hosts[0].Changed, second.Hosts[0].Changed)
	require.Equal(t, second.Revision, second.Hosts[1].Changed, "a new answer")
	require.Equal(t, first.Hosts[2].Changed, second.Hosts[2].Changed, "the same failure")
	require.Greater(t, second.Hosts[0].Seen, first.Hosts[0].Seen)
	require.Same(t, second, s.Fleet(), "nothing happened")
	for name, change := range map[string]func(c *controller.Round){
		"another failure": func(c *controller.Round) { c.Cluster.Hosts[0].Snapshot, c.Cluster.Hosts[0].Err = nil, errDown },
		"another way":     func(c *controller.Round) { c.Via = map[snapshot.Hostname]agent.Via{"a": agent.ViaStream} },
		"another label":   func(c *controller.Round) { c.Cluster.Hosts[0].Labels = map[string]string{"rack": "7"} },
	} {
		s := newStage(answered("a", "alice"))
		s.run(nil)
		f := s.run(change)
		require.Equal(t, f.Revision, f.Hosts[0].Changed, name)
	}
}

// TestAReload that drops a host, changes the order and adds one.
func TestAReload(t *testing.T) {
	s := newStage(answered("a", "alice"), answered("b", "bob"), failed("c"))
	s.run(nil)
	seen := s.now
	f := s.run(func(c *controller.Round) {
		c.Cluster.Hosts = []snapshot.Host{failed("d"), failed("b"), answered("c", "carol")}
	})
	require.Len(t, f.Hosts, 3)
	require.Zero(t, f.Hosts[0].Seen)
	require.Equal(t, seen, f.Hosts[1].Seen, "the same host in another place")
	require.Equal(t, s.now, f.Hosts[2].Seen)
	require.Len(t, f.Users, 1)
	f = s.run(func(c *controller.Round) { c.Cluster.Hosts = []snapshot.Host{failed("a")} })
	require.Zero(t, f.Hosts[0].Seen, "it was forgotten")
}

func TestUsers(t *testing.T) {
	busy := answered("b", "alice")
	busy.Snapshot.Devices[1].Attachments = []snapshot.Attachment{{EID: "7"}, {EID: "gone"}}
	busy.Snapshot.Processes = append(busy.Snapshot.Processes,
		snapshot.Process{PID: 10, Username: "bob", Usage: []snapshot.DeviceUsage{{Index: 0, Memory: snapshot.MiB(1)}, {Index: 1}}},
		snapshot.Process{PID: 11, Usage: []snapshot.DeviceUsage{{Index: 0}}})
	s := newStage(answered("a", "alice"), busy, failed("c"))
	file := policy.Default()
	two := 2
	file.Defaults.MaxDevices = &two
	s.Configure(live.Options{Now: func() time.Time { return s.now }, Enforcing: true, Policy: file})
	f := s.run(func(c *controller.Round) {
		c.Plan.Findings = []enforce.Finding{{User: "alice"}, {User: "carol"}, {}}
		c.Duplicates = []controller.Duplicate{{Name: "x", SameAs: "a"}}
	})
	require.Equal(t, []live.FleetUser{
		{Name: "alice", Hosts: 2, Attached: 3, Idle: 1, Used: 2, Memory: 10 << 20, Cap: &two, Findings: 1},
		{Name: "bob", Hosts: 1, Used: 2, Memory: 1 << 20, Cap: &two},
		{Name: "carol", Findings: 1, Cap: &two},
	}, f.Users)
	require.Len(t, f.Duplicates, 1)
	require.Len(t, f.Findings, 3)
}

// TestAFleetIsNeverChanged while viewers hold it.
func TestAFleetIsNeverChanged(t *testing.T) {
	s := newStage(answered("a", "alice"), answered("b", "bob"))
	held := s.run(func(c *controller.Round) { c.Plan.Findings = []enforce.Finding{{User: "alice"}} })
	before := proctest.Try(json.Marshal(held)).OK(t)
	s.run(func(c *controller.Round) { c.Cluster.Hosts[0], c.Plan.Findings = failed("a"), nil })
	s.run(func(c *controller.Round) { c.Cluster.Hosts[0] = answered("a", "mallory") })
	require.JSONEq(t, string(before), string(proctest.Try(json.Marshal(held)).OK(t)))
}

// TestHostileNames stay as they are: who shows them escapes them. In JSON they do no harm.
func TestHostileNames(t *testing.T) {
	for _, name := range []string{"<script>alert(1)</script>", "a\nb\x1b[2J\x00", "\xff\xfe", string(make([]byte, 10<<10)), "\u202eevil"} {
		s := newStage(answered(snapshot.Hostname(name), snapshot.Username(name)))
		f := s.run(nil, enforce.Event{Kind: enforce.EventHostLost, Host: snapshot.Hostname(name), Err: errors.New(name)})
		require.EqualValues(t, name, f.Hosts[0].Name)
		for _, document := range []any{f, s.Events(0)} {
			text := proctest.Try(json.Marshal(document)).OK(t)
			require.True(t, json.Valid(text))
			require.NotContains(t, string(text), "<script")
			require.NotContains(t, string(text), "\n")
			require.NotContains(t, string(text), "\x1b")
		}
	}
}

func TestAStoppedCycleSaysNothing(t *testing.T) {
	s := newStage(answered("a", "alice"))
	f := s.run(nil)
	s.Consume(&controller.Round{Ended: true, Stopped: true, Cluster: snapshot.Cluster{Hosts: []snapshot.Host{failed("a")}}}, nil)
	require.Same(t, f, s.Fleet())
	s.Consume(&controller.Round{Number: 2}, nil)
	require.Same(t, f, s.Fleet(), "outcomes of an earlier cycle come without hosts")
}

func TestWatched(t *testing.T) {
	s := newStage()
	require.False(t, s.Watched(time.Hour), "there was no viewer yet")
	s.Position()
	_, stop := s.Watch()
	stop()
	s.Consume(s.round.AtEnd(), nil)
	require.False(t, s.Watched(time.Hour))
	s.Fleet()
	require.True(t, s.Watched(time.Minute))
	s.now = s.now.Add(2 * time.Minute)
	require.False(t, s.Watched(time.Minute))
}

func lost(n int) []enforce.Event {
	events := make([]enforce.Event, n)
	for i := range events {
		events[i] = enforce.Event{Kind: enforce.EventHostLost, Host: snapshot.Hostname(fmt.Sprint(i))}
	}
	return events
}

// TestEventsAreBounded: those that are no longer kept show as a gap.
func TestEventsAreBounded(t *testing.T) {
	s := newStage(failed("a"))
	require.Empty(t, s.Events(0))
	s.run(nil, lost(3)...)
	require.Len(t, s.Events(0), 3)
	require.Equal(t, uint64(3), s.Events(2)[0].Number)
	for _, after := range []uint64{3, 4, 1 << 63, ^uint64(0)} {
		require.Empty(t, s.Events(after), after)
	}
	s.run(nil, lost(20_000)...)
	list := s.Events(3)
	require.Less(t, len(list), 6000)
	require.Greater(t, list[0].Number, uint64(4), "a gap")
	require.Equal(t, uint64(20_003), list[len(list)-1].Number)
	require.Equal(t, uint64(20_003), s.Position().Events)
	for i := range list {
		require.Equal(t, list[0].Number+uint64(i), list[i].Number)
	}
}

// TestViewers: cycles wait for none of them, and those that wait are woken.
func TestViewers(t *testing.T) {
	s := newStage(answered("a", "alice"))
	asleep, stop := s.Watch()
	defer stop()
	<-asleep // for what is there already
	for range 1000 {
		s.run(nil, lost(1)...)
	}
	<-asleep
	select {
	case <-asleep:
		require.Fail(t, "several changes are one value")
	default:
	}
	gone, stop := s.Watch()
	<-gone
	stop()
	stop()
	s.run(nil)
	select {
	case <-gone:
		require.Fail(t, "it was closed")
	default:
	}
}

// TestManyViewers look while cycles run.
func TestManyViewers(t *testing.T) {
	const viewers, cycles = 100, 50
	s := newStage(answered("a", "alice"), answered("b", "bob"))
	start := time.Unix(1_800_000_000, 0)
	s.Configure(live.Options{Now: func() time.Time { return start }, Enforcing: true})
	var work sync.WaitGroup
	for range viewers {
		changes, stop := s.Watch()
		work.Go(func() {
			defer stop()
			var revision, last uint64
			for last < cycles {
				<-changes
				f := s.Fleet()
				if f.Revision < revision {
					t.Errorf("revision %d after %d", f.Revision, revision)
				}
				revision = f.Revision
				if _, err := json.Marshal(f); err != nil {
					t.Error(err)
				}
				s.For("alice").Fleet()
				for _, e := range s.Events(last) {
					if e.Number != last+1 {
						t.Errorf("event %d after %d", e.Number, last)
					}
					last = e.Number
				}
			}
		})
	}
	for i := range cycles {
		s.run(func(c *controller.Round) {
			c.Plan.Findings = []enforce.Finding{{User: "alice"}}
			c.Cluster.Hosts[i%2] = []snapshot.Host{answered("a", "alice"), failed("b")}[i%2]
		}, lost(1)...)
	}
	work.Wait()
}

// TestAHostMakesUpEvents: they don't push out those of other hosts.
func TestAHostMakesUpEvents(t *testing.T) {
	s := newStage(answered("a", "alice"), answered("evil", "mallory"))
	s.run(nil, enforce.Event{Kind: enforce.EventHostBack, Host: "a"})
	made := make([]enforce.Event, 256)
	for i := range made {
		made[i] = enforce.Event{Kind: enforce.EventOver, Host: "evil", ID: fmt.Sprint(i)}
	}
	for range 100 {
		s.run(nil, made...)
	}
	list := s.Events(0)
	require.Equal(t, snapshot.Hostname("a"), list[0].Host)
	require.LessOrEqual(t, len(list), 4096+1024)
	require.EqualValues(t, 25601, list[len(list)-1].Number, "the newest are there")
	require.Len(t, s.Events(25600), 1)
}

// TestAHostMakesUpUsers: as many as its snapshot may have. The cycles of all hosts wait while
// idle GPUs are looked for.
func TestAHostMakesUpUsers(t *testing.T) {
	evil := &snapshot.Snapshot{Devices: []snapshot.Device{{Index: 0}, {Index: 1}}}
	for i := range 65536 {
		user := snapshot.Username(fmt.Sprintf("somebody-who-does-not-exist-%06d", i))
		evil.Processes = append(evil.Processes, snapshot.Process{PID: snapshot.PID(i + 1), Username: user, Usage: []snapshot.DeviceUsage{{Index: 0}}})
		evil.Environments = append(evil.Environments, snapshot.Environment{EID: snapshot.EnvID(user), Username: user})
		evil.Devices[1].Attachments = append(evil.Devices[1].Attachments, snapshot.Attachment{EID: snapshot.EnvID(user)})
	}
	begun := time.Now()
	f := newStage(snapshot.Host{Name: "evil", Snapshot: evil}).run(nil)
	require.Less(t, time.Since(begun), 30*time.Second, "it took minutes")
	require.Len(t, f.Users, 65536)
	require.Equal(t, live.FleetUser{Name: "somebody-who-does-not-exist-000007", Hosts: 1, Attached: 1, Idle: 1, Used: 1}, f.Users[7])
}
