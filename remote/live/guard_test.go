package live_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
)

func TestWhatIsSaidOfAGuard(t *testing.T) {
	const off, watch, enforce, unable = snapshot.GuardOff, snapshot.GuardWatch, snapshot.GuardEnforce, snapshot.GuardUnable
	for _, c := range []struct {
		guard   live.Guard
		want    string
		differs bool
	}{
		{live.Guard{}, "", false},
		{live.Guard{Mode: off}, "", false},
		{live.Guard{Mode: off, Reason: "it was turned off by root"}, "", false},
		{live.Guard{Mode: watch}, "watch", false},
		{live.Guard{Mode: enforce, Policy: enforce}, "enforce", false},
		{live.Guard{Policy: watch}, "unknown, although the policy says watch", true},
		{live.Guard{Mode: off, Policy: enforce, Reason: "guard.off exists"}, "off, although the policy says enforce: guard.off exists", true},
		{live.Guard{Mode: watch, Policy: enforce, Reason: "no room"}, "watch, although the policy says enforce: no room", true},
		{live.Guard{Mode: unable, Policy: enforce, Reason: "no BPF"}, "unable, although the policy says enforce: no BPF", true},
		{live.Guard{Mode: unable, Reason: "no BPF"}, "unable: no BPF", true},
	} {
		require.Equal(t, c.want, c.guard.String(), "%+v", c.guard)
		require.Equal(t, c.differs, c.guard.Differs(), "%+v", c.guard)
	}
}

// guarded is a fleet of which a has no guard, b is not able, c says nothing, and d fails.
func guarded(t *testing.T, file string) *stage {
	s := newStage(answered("a", "alice"), answered("b", "bob"), answered("c", "carol"), answered("d", "dave"))
	f, err := policy.Parse("policy.yaml", []byte(file))
	require.NoError(t, err)
	s.Configure(live.Options{Now: func() time.Time { return s.now }, Interval: 10 * time.Second, Enforcing: true, Policy: f})
	on, no := true, false
	hosts := s.cycle.Cluster.Hosts
	hosts[0].Snapshot.Guard, hosts[0].Snapshot.Service = &snapshot.Guard{Mode: snapshot.GuardOff}, &no
	hosts[1].Snapshot.Guard, hosts[1].Snapshot.Service = &snapshot.Guard{Mode: snapshot.GuardUnable, Reason: "turned off by alice"}, &on
	hosts[3].Snapshot.Guard, hosts[3].Snapshot.Service = &snapshot.Guard{Mode: snapshot.GuardEnforce}, &on
	s.run(nil)
	s.run(func(c *controller.Cycle) { c.Cluster.Hosts[3] = failed("d") })
	return s
}

func guardsOf(f *live.Fleet) (list []live.Guard) {
	for i := range f.Hosts {
		list = append(list, f.Hosts[i].Guard)
	}
	return list
}

func TestGuardsOfAFleet(t *testing.T) {
	const enforce = snapshot.GuardEnforce
	f := guarded(t, "defaults: {guard: enforce}\n").Fleet()
	require.Equal(t, []live.Guard{
		{Mode: snapshot.GuardOff, Policy: enforce},
		{Mode: snapshot.GuardUnable, Reason: "turned off by alice", Policy: enforce},
		{Policy: enforce},
		{}, // of one that fails nothing is known, and it is said elsewhere
	}, guardsOf(f))
	require.False(t, *f.Hosts[0].Service)
	require.True(t, *f.Hosts[1].Service)
	require.Nil(t, f.Hosts[2].Service, "unknown is not off")
	require.Nil(t, f.Hosts[3].Service)
	text, err := json.Marshal(f.Hosts[2])
	require.NoError(t, err)
	require.Contains(t, string(text), `"guard":{"policy":"enforce"}`)

	f = guarded(t, "defaults: {guard: off}\n").Fleet()
	require.Equal(t, live.Guard{Mode: snapshot.GuardOff}, f.Hosts[0].Guard)
	text, err = json.Marshal(f.Hosts[2])
	require.NoError(t, err)
	require.NotContains(t, string(text), "guard")
	require.NotContains(t, string(text), "service")
}

// TestADryRunOrdersNoGuard: nor does one that only watches. What a host does is known all the same.
func TestADryRunOrdersNoGuard(t *testing.T) {
	s := guarded(t, "defaults: {guard: watch}\n")
	f := s.run(func(c *controller.Cycle) { c.DryRun = true })
	require.Equal(t, []live.Guard{{Mode: snapshot.GuardOff}, {Mode: snapshot.GuardUnable, Reason: "turned off by alice"}, {}, {}}, guardsOf(f))
}

func TestAnotherModeIsAChange(t *testing.T) {
	s := guarded(t, "defaults: {guard: enforce}\n")
	before := s.Fleet().Hosts
	s.run(nil)
	require.Equal(t, before[0].Changed, s.Fleet().Hosts[0].Changed)
	f := s.run(func(c *controller.Cycle) {
		next := *c.Cluster.Hosts[0].Snapshot
		next.Guard = &snapshot.Guard{Mode: snapshot.GuardEnforce}
		c.Cluster.Hosts[0].Snapshot = &next
	})
	require.Greater(t, f.Hosts[0].Changed, before[0].Changed)
	require.Empty(t, s.For("").Fleet().Hosts[1].Guard.Reason, "it may name somebody")
	require.Equal(t, snapshot.GuardUnable, s.For("").Fleet().Hosts[1].Guard.Mode)
}
