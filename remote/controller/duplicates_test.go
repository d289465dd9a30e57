package controller_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
)

// capped lets each user have n devices.
func capped(n int) constant { return constant{MaxDevices: &n} }

// machine is one that alice has two devices on.
func machine(boot, folder string) *snapshot.Snapshot {
	s := &snapshot.Snapshot{BootID: boot, StateFolder: folder}
	s.Environments = []snapshot.Environment{{EID: "1", UID: 1001, Username: "alice", PIDs: []snapshot.PID{7}}}
	for i := range 2 {
		s.Devices = append(s.Devices, snapshot.Device{
			Index: snapshot.DeviceIndex(i), TotalMemory: snapshot.MiB(81559), Attachments: []snapshot.Attachment{{EID: "1"}},
		})
	}
	return s
}

// An honest user keeps what is allowed, whatever number of names the machine has;
// a user over the cap loses devices once.
func TestOneMachineUnderTwoNamesIsJudgedOnce(t *testing.T) {
	for _, tt := range []struct {
		name         string
		hosts        []*snapshot.Snapshot
		cap, carried int
		duplicates   []string
	}{
		{"within the cap", []*snapshot.Snapshot{machine("m", "8:1/5"), machine("m", "8:1/5")}, 2, 0, []string{"h1=h0"}},
		{"three names", []*snapshot.Snapshot{machine("m", "8:1/5"), machine("m", "8:1/5"), machine("m", "8:1/5")}, 2, 0, []string{"h1=h0", "h2=h0"}},
		{"over the cap", []*snapshot.Snapshot{machine("m", "8:1/5"), machine("m", "8:1/5")}, 1, 1, []string{"h1=h0"}},
		{"two machines", []*snapshot.Snapshot{machine("m", "8:1/5"), machine("n", "8:1/5")}, 2, 2, nil},
		{"two hosts on one machine", []*snapshot.Snapshot{machine("m", "8:1/5"), machine("m", "8:1/6")}, 2, 2, nil},
		{"one that shows what another one is", []*snapshot.Snapshot{machine("m", "8:1/5"), machine("m", "8:1/5")}, 2, 2, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, hosts := startMachines(t, tt.hosts...)
			for i := range tt.duplicates { // another name for the first one's address
				f.Names[i+1] = remote.Host{Name: f.Names[i+1].Name, Address: f.Hosts()[0].Address}
			}
			path := filepath.Join(t.TempDir(), "audit.jsonl")
			c := controllerOfFleet(f, len(f.Names))
			c.Audit = &audit.Log{Path: path}
			first := cycleOf(t.Context(), c, capped(tt.cap))
			require.Empty(t, first.Cluster.Failed())
			require.Len(t, first.Cluster.Hosts, len(tt.hosts)-len(tt.duplicates))
			var found []string
			for _, d := range first.Duplicates {
				require.True(t, d.New)
				found = append(found, fmt.Sprintf("%s=%s", d.Name, d.SameAs))
			}
			require.Equal(t, tt.duplicates, found)
			carried := 0
			for _, h := range hosts {
				carried += len(h.Actions())
			}
			require.Equal(t, tt.carried, carried)
			for _, d := range cycleOf(t.Context(), c, capped(100)).Duplicates {
				require.False(t, d.New, "it is said once")
			}
			require.Len(t, recordsOf(t, path, audit.KindDuplicate), len(tt.duplicates))
		})
	}
}

// TestProvedByToken: a name that shows what another one was given is the same machine, also when only the tokens change.
func TestProvedByToken(t *testing.T) {
	for _, tt := range []struct {
		name        string
		folders     []string
		runs, hosts int
	}{
		{"two addresses of one machine", []string{"8:1/5", "8:1/5"}, 1, 1},
		{"two state folders on one machine", []string{"8:1/5", "8:1/6"}, 1, 2},
		{"one that shows the boot and the folder of another one", []string{"8:1/5", "8:1/5"}, 2, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var handlers []inprocess.Handler
			runs := []string{t.TempDir(), t.TempDir()}
			for i, folder := range tt.folders {
				handlers = append(handlers, genvhost.New(machine("m", folder)).WithTokens(runs[i%tt.runs]))
			}
			f := genvhost.Start(t, 3*time.Second, handlers...)
			c := controllerOfFleet(f, 1)
			cycleOf(t.Context(), c, capped(100))
			require.Empty(t, cycleOf(t.Context(), c, capped(100)).Cluster.Hosts[0].Snapshot.Tokens)
			c.Hosts = f.Names
			round := cycleOf(t.Context(), c, capped(100))
			require.Len(t, round.Cluster.Hosts, tt.hosts)
			round = cycleOf(t.Context(), c, capped(100))
			require.Len(t, round.Cluster.Hosts, tt.hosts)
			require.Len(t, round.Cluster.Hosts[0].Snapshot.Tokens, 2-tt.hosts)
		})
	}
}

func startMachines(t *testing.T, snapshots ...*snapshot.Snapshot) (*genvhost.Fleet, []*genvhost.Host) {
	var hosts []*genvhost.Host
	var handlers []inprocess.Handler
	for _, s := range snapshots {
		hosts = append(hosts, genvhost.New(s))
		handlers = append(handlers, hosts[len(hosts)-1])
	}
	return genvhost.Start(t, 3*time.Second, handlers...), hosts
}

// While the first name fails, the second serves under the first one's name: what
// is found stays what it was, and no failure is reported.
func TestTheSecondNameServesWhileTheFirstFails(t *testing.T) {
	link := &names{down: map[string]bool{}, sent: map[string]int{}}
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	c := controllerOf(link, nil, "a", "b", "c")
	c.Audit = &audit.Log{Path: path}
	policy := strict{warn: enforce.Warn{Cycles: 4}}
	for number, down := range []string{"", "a", "", "b", "a"} {
		link.down = map[string]bool{down: true}
		round := cycleOf(t.Context(), c, policy)
		require.Len(t, round.Cluster.Hosts, 2, "cycle %d", number+1)
		require.Empty(t, round.Cluster.Failed())
		require.Equal(t, []controller.Duplicate{{Name: "b", SameAs: "a", New: number == 0}}, round.Duplicates)
		require.Len(t, round.Plan.Findings, 2)
		require.Equal(t, snapshot.Hostname("a"), round.Plan.Findings[0].Host)
		require.Equal(t, number+1, round.Plan.Findings[0].Cycles, "it has been there without a break")
	}
	require.Equal(t, map[string]int{"b": 1, "c": 1}, link.sent, "in the fifth cycle, in which a fails")
	require.Empty(t, recordsOf(t, path, audit.KindFailed))
	require.Empty(t, recordsOf(t, path, audit.KindCleared))
	require.Len(t, recordsOf(t, path, audit.KindDuplicate), 1)

	link.down = map[string]bool{"a": true, "b": true}
	round := cycleOf(t.Context(), c, policy)
	require.Len(t, round.Cluster.Failed(), 1, "one machine, one failure")
	require.Equal(t, snapshot.Hostname("a"), round.Cluster.Failed()[0].Name)
}

// names are two names of one machine, a and b, and another machine, c, each with a process in no environment.
type names struct {
	plain
	down map[string]bool
	mu   sync.Mutex
	sent map[string]int
}

func (n *names) Snapshot(_ context.Context, h remote.Host) (*snapshot.Snapshot, error) {
	if n.down[h.Name] {
		return nil, remote.Errorf(remote.Unreachable, "no route")
	}
	s := &snapshot.Snapshot{BootID: "1", StateFolder: "8:1/5", Token: h.Name, Tokens: map[string][]string{"b": {"a"}}[h.Name]}
	s.Processes = []snapshot.Process{{PID: 5, Start: 1, Usage: []snapshot.DeviceUsage{{Index: 0}}}}
	return s, nil
}

func (n *names) Execute(_ context.Context, h remote.Host, _ order.Order) (agent.Execution, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent[h.Name]++
	return agent.Execution{Outcomes: []order.Outcome{{PID: 5, Status: order.StatusTerminated}}}, nil
}

// Hosts with genv 1.4.3 report no identity: address and host key show that two names are one.
func TestOldHostsAreKnownByTheirConnections(t *testing.T) {
	for name, same := range map[string]bool{"one sshd": true, "two": false} {
		t.Run(name, func(t *testing.T) {
			old := genvhost.New(machine("", "")).Old()
			f := genvhost.Start(t, 3*time.Second, old, genvhost.New(machine("", "")).Old())
			if same {
				f.Names[1] = remote.Host{Name: "alias", Address: f.Hosts()[0].Address}
			}
			c := controllerOfFleet(f, 2)
			round := cycleOf(t.Context(), c, capped(2))
			require.Empty(t, round.Cluster.Failed())
			require.Equal(t, same, len(round.Duplicates) == 1)
			require.Equal(t, same, len(round.Plan.Orders) == 0)
		})
	}
}
