package caps_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/holdings"
	"github.com/seed-3119e985/genv/remote/caps"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/testfleet/etcdcluster"
	"github.com/seed-3119e985/genv/snapshot"
)

const key = "/genv/lab"

// patience is how late a busy machine may be.
const patience = 30 * time.Second

var begun = time.Now()

func clock() time.Duration { return time.Since(begun) }

// fourDevices caps everybody at four devices.
type fourDevices struct{}

func (fourDevices) Settings(enforce.Query) *enforce.Settings {
	limit := 4
	return &enforce.Settings{MaxDevices: &limit}
}
func (fourDevices) Exempt(enforce.Subject) (string, bool) { return "", false }
func (fourDevices) Fleet() enforce.Fleet                  { return enforce.Fleet{} }

// site is a fleet in three shards. Its hosts do at once what they are told.
type site struct {
	*testing.T
	etcd     *etcdcluster.Cluster
	client   *etcd.Client
	order    map[snapshot.Hostname]int
	shards   []*controller
	detached []string // HOST:DEVICE, in turn
}

// controller is the leader of a shard.
type controller struct {
	site   *site
	number int
	hosts  []snapshot.Host
	lease  etcd.Lease
	epoch  atomic.Uint64
	member *caps.Member
	memory enforce.Memory
	plan   enforce.Plan // of the last cycle
}

func guardOf(shard int) string { return fmt.Sprintf("%s/shards/%02d/leader", key, shard) }

// host is one with devices that alice attached at minutes of an hour.
func host(name snapshot.Hostname, minutes ...int) snapshot.Host {
	s := &snapshot.Snapshot{}
	for i := range minutes {
		eid := snapshot.EnvID(fmt.Sprint(i + 1))
		at := snapshot.DateOf(time.Date(2026, 1, 1, 12, minutes[i], 0, 0, time.UTC))
		s.Environments = append(s.Environments, snapshot.Environment{EID: eid, UID: 1001, Username: "alice", Creation: at})
		s.Devices = append(s.Devices, snapshot.Device{Index: snapshot.DeviceIndex(i), Attachments: []snapshot.Attachment{{EID: eid, Time: at}}})
	}
	return snapshot.Host{Name: name, Snapshot: s}
}

func newSite(t *testing.T, shards ...[]snapshot.Host) *site {
	cluster := etcdcluster.Start(t, 1)
	s := &site{T: t, etcd: cluster, client: etcd.New(etcd.Config{Endpoints: cluster.Endpoints()}), order: make(map[snapshot.Hostname]int)}
	t.Cleanup(s.client.Close)
	for i, hosts := range shards {
		for _, h := range hosts {
			s.order[h.Name] = len(s.order)
		}
		s.shards = append(s.shards, s.lead(i, hosts))
	}
	return s
}

// lead has a new controller lead a shard.
func (s *site) lead(number int, hosts []snapshot.Host) *controller {
	c := &controller{site: s, number: number, hosts: hosts}
	var err error
	c.lease, err = s.client.Grant(s.Context(), time.Minute)
	require.NoError(s, err)
	made, err := s.client.Create(s.Context(), guardOf(number), []byte("{}"), c.lease.ID)
	require.NoError(s, err)
	require.True(s, made.Own)
	c.epoch.Store(made.Created)
	c.member = caps.NewMember(caps.MemberOptions{
		Store: s.client, Key: key, Number: number, Guard: guardOf(number), Epoch: c.epoch.Load,
		Order: func() map[snapshot.Hostname]int { return s.order }, Every: time.Second, Clock: clock,
	})
	s.start(c.member.Run)
	return c
}

// resign ends a leadership, of which the controller doesn't know yet.
func (c *controller) resign() {
	require.NoError(c.site, c.site.client.Revoke(c.site.Context(), c.lease.ID))
}

// start runs something until the test ends, or the function that is returned is called.
func (s *site) start(run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { run(ctx); close(ended) }()
	stop = func() { cancel(); <-ended }
	s.Cleanup(stop)
	return stop
}

// judge adds a controller that may be elected to judge, and cuts it off from etcd when told to.
func (s *site) judge(name string) (*caps.Judge, *etcdcluster.Cut) {
	cut := s.etcd.Cut(s.T)
	client := etcd.New(etcd.Config{Endpoints: cut.Endpoints()})
	s.Cleanup(client.Close)
	var hosts []int
	for _, c := range s.shards {
		hosts = append(hosts, len(c.hosts))
	}
	elector := election.New(election.Options{
		Cluster: client, Key: caps.JudgeKey(key), Self: election.Candidate{ID: name, Name: name}, Clock: clock, Now: time.Now,
	})
	s.start(elector.Run)
	judge := caps.NewJudge(caps.JudgeOptions{
		Store: client, Key: key, Shards: len(s.shards), Guard: guardOf, Clock: clock,
		Hosts: func(shard int) int { return hosts[shard] },
		Rules: func() holdings.Rules { return enforce.CapRules(fourDevices{}, time.Now()) },
		Epoch: func() uint64 {
			if s := elector.Status(); s.Role == election.Leading {
				return s.Epoch
			}
			return 0
		},
	})
	s.start(judge.Run)
	return judge, cut
}

// cycle judges the hosts of a shard and acts.
func (c *controller) cycle() {
	cluster := snapshot.Cluster{Hosts: c.hosts}
	plan, next, _, held := enforce.JudgeShard(fourDevices{}, cluster, c.memory, time.Now(), c.member.Shard())
	c.plan, c.memory = plan, next
	c.member.Publish(held)
	for _, r := range plan.Reports {
		for _, d := range r.Report.Detach {
			c.site.detached = append(c.site.detached, fmt.Sprintf("%s:%d", r.Host, d.Device))
			c.detach(r.Host, d.Device)
		}
	}
}

func (c *controller) detach(name snapshot.Hostname, device snapshot.DeviceIndex) {
	i := slices.IndexFunc(c.hosts, func(h snapshot.Host) bool { return h.Name == name })
	s := *c.hosts[i].Snapshot
	s.Devices = slices.Clone(s.Devices)
	s.Device(device).Attachments = nil
	c.hosts[i].Snapshot = &s
}

// cycles has all controllers judge in turn until something holds.
func (s *site) cycles(until func() bool, what string) {
	s.Helper()
	for from := time.Now(); !until(); time.Sleep(20 * time.Millisecond) {
		require.Less(s, time.Since(from), patience, "%s; detached: %v", what, s.detached)
		for _, c := range s.shards {
			c.cycle()
		}
	}
}

// settled has all controllers judge until the judge has decided several times.
func (s *site) settled() {
	s.Helper()
	from := time.Now()
	s.cycles(func() bool { return time.Since(from) > 2500*time.Millisecond }, "")
}

func (s *site) whole() snapshot.Cluster {
	var all snapshot.Cluster
	for _, c := range s.shards {
		all.Hosts = append(all.Hosts, c.hosts...)
	}
	return all
}

// wanted is what is detached when one controller judges all hosts.
func (s *site) wanted() (list []string) {
	plan, _, _ := enforce.Judge(fourDevices{}, s.whole(), enforce.Memory{}, time.Now())
	for _, r := range plan.Reports {
		for _, d := range r.Report.Detach {
			list = append(list, fmt.Sprintf("%s:%d", r.Host, d.Device))
		}
	}
	return list
}

// found is what the shards found about alice.
func (s *site) found() string {
	var list []string
	for _, c := range s.shards {
		for _, f := range c.plan.Findings {
			list = append(list, fmt.Sprintf("%d: %s, %d hosts missing", c.number, f.String(), f.HostsMissing))
		}
	}
	return strings.Join(list, "; ")
}

func TestThreeShards(t *testing.T) {
	t.Parallel()
	s := newSite(t, []snapshot.Host{host("a", 1, 2)}, []snapshot.Host{host("b", 3, 5), host("c", 4)}, []snapshot.Host{host("d"), host("e")})
	_, cut := s.judge("first")
	wanted := s.wanted()
	require.Equal(t, []string{"b:1"}, wanted)
	s.cycles(func() bool { return len(s.detached) > 0 }, "one of five devices goes")
	require.Equal(t, wanted, s.detached)
	s.settled()
	require.Equal(t, wanted, s.detached, "and no other one")
	require.Empty(t, s.found())

	// Another controller judges when the first one is cut off. Nothing goes twice, and
	// while no judge is elected, nothing goes.
	second, _ := s.judge("second")
	cut.Interrupt()
	s.shards[2].hosts[0] = host("d", 6)
	wanted = append(wanted, s.wanted()...)
	require.Equal(t, []string{"b:1", "d:0"}, wanted)
	s.cycles(func() bool { return len(s.detached) > 1 }, "one goes again")
	require.True(t, second.Status().Elected)
	s.settled()
	require.Equal(t, wanted, s.detached)
	cut.Mend()

	// A shard without a leader counts as hosts that did not answer.
	gone := s.shards[1]
	gone.resign()
	s.cycles(func() bool { return slices.Equal(second.Status().Missing, []int{1}) }, "the shard is missing")
	s.shards[2].hosts[0] = host("d", 7, 8, 9)
	s.shards = slices.Delete(slices.Clone(s.shards), 1, 2)
	s.cycles(func() bool { return len(s.detached) > 2 }, "five without the others'")
	require.Equal(t, append(wanted, "d:2"), s.detached)
	require.Equal(t, "2: User alice is using 5 devices on 2 hosts which is 1 more than the maximum allowed, 2 hosts missing", s.found())
	s.settled()
	require.Len(t, s.detached, 3)

	// What the earlier leader of a shard wrote, or still wants to write, doesn't count.
	next := s.lead(1, []snapshot.Host{host("b", 3), host("c", 4)})
	gone.cycle()
	s.cycles(func() bool { gone.cycle(); return gone.member.Err() != nil }, "it writes nothing")
	require.ErrorIs(t, gone.member.Err(), etcd.ErrConflict)
	require.Equal(t, []int{1}, second.Status().Missing)
	require.Len(t, s.detached, 3)
	s.shards = []*controller{s.shards[0], next, s.shards[1]}
	s.cycles(func() bool { return len(s.detached) == 5 }, "of six devices two go")
	require.ElementsMatch(t, []string{"d:0", "d:1"}, s.detached[3:])
	s.settled()
	require.Len(t, s.detached, 5)
	require.Empty(t, second.Status().Missing)
}

// A decision is not used if it is old, or was made from the holdings of an earlier leader.
func TestNoDecision(t *testing.T) {
	t.Parallel()
	s := newSite(t, []snapshot.Host{host("a", 1, 2, 3, 4)})
	_, cut := s.judge("first")
	c := s.shards[0]
	s.cycles(func() bool { return c.member.Shard().Decision != nil }, "a decision")
	c.epoch.Add(1)
	require.Nil(t, c.member.Shard().Decision, "of another leader")
	c.epoch.Add(^uint64(0))
	require.NotNil(t, c.member.Shard().Decision)
	cut.Interrupt()
	s.cycles(func() bool { return c.member.Shard().Decision == nil }, "it becomes too old")
	c.hosts[0] = host("a", 1, 2, 3, 4, 5)
	s.settled()
	require.Empty(t, s.detached)
	cut.Mend()
	s.cycles(func() bool { return len(s.detached) == 1 }, "one goes")
}
