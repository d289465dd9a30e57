package controller

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// idOf reads "machine boot folder address key", with - for what isn't known, and
// nil for "down".
func idOf(text string) *machineID {
	if text == "down" {
		return nil
	}
	words := strings.Fields(strings.ReplaceAll(text+" - - - - -", "-", " - "))
	for i, w := range words {
		if w == "-" {
			words[i] = ""
		}
	}
	return &machineID{agent.Identity{Machine: words[0], Boot: words[1], Folder: words[2]}, remote.Peer{Address: words[3], HostKey: words[4]}}
}

// Each row is cycles of a fleet of a, b and c: what is known of each, and which
// of them count.
func TestMachines(t *testing.T) {
	type cycle struct {
		a, b, c, want string
	}
	for _, tt := range []struct {
		name   string
		cycles []cycle
	}{
		{"three machines", []cycle{{"m1 b1 f1 1 k", "m2 b2 f1 2 k", "m3 b3 f1 3 k", "a b c"}}},
		{"two names of one", []cycle{{"m1 b1 f1 1 k", "m2 b2 f1 2 k", "m1 b1 f1 3 k", "a b a"}}},
		{"three names of one", []cycle{{"m1 b1 f1 1 k", "m1 b1 f1 2 k", "m1 b1 f1 3 k", "a a a"}}},
		{"by other connections", []cycle{{"m1 b1 f1 1 k1", "m1 b1 f1 2 k1", "down", "a a c"}}},
		{"one that makes up another's identity", []cycle{{"m1 b1 f1 1 k1", "m1 b1 f1 2 k2", "m1 b1 f1 3 k1", "a b a"}}},
		{"and did not from the start", []cycle{{"m1 b1 f1 1 k1", "m2 b1 f1 2 k2", "down", "a b c"}, {"m1 b1 f1 1 k1", "m1 b1 f1 2 k2", "down", "a b c"}}},
		{"without a key that is known", []cycle{{"m1 b1 f1 - -", "m1 b1 f1 2 k2", "down", "a a c"}}},
		{"several hosts on one machine", []cycle{{"m1 b1 f1 1 k", "m1 b1 f2 2 k", "m1 b1 f3 1 k", "a b c"}}},
		{"a machine that doesn't say its folder", []cycle{{"m1 b1 - 1 k", "m1 b1 - 2 k", "m1 b1 f 3 k", "a b c"}}},
		{"an image that was copied", []cycle{{"m1 b1 f1 1 k", "m1 b2 f1 2 k", "m1 b3 f1 3 k", "a b c"}}},
		{"by the connection alone", []cycle{{"- - - 1 k", "- - - 2 k", "- - - 1 k", "a b a"}}},
		{"one key on several addresses", []cycle{{"- - - 1 k", "- - - 2 k", "- - - 3 k", "a b c"}}},
		{"several keys on one address", []cycle{{"- - - 1 k1", "- - - 1 k2", "- - - 1 k3", "a b c"}}},
		{"nothing is known", []cycle{{"-", "-", "-", "a b c"}}},
		{"no key is known", []cycle{{"- - - 1 -", "- - - 1 -", "- - - - k", "a b c"}}},
		{"one of them says who it is", []cycle{{"m1 b1 f1 1 k", "- - - 1 k", "m3 b3 f1 3 k", "a a c"}}},
		{"none answers", []cycle{{"down", "down", "down", "a b c"}}},
		{"the first fails for a while", []cycle{
			{"m1 b1 f1 1 k", "m1 b1 f1 2 k", "down", "a a c"},
			{"down", "m1 b1 f1 2 k", "down", "a a c"},
			{"down", "down", "down", "a a c"},
			{"m1 b1 f1 1 k", "down", "down", "a a c"},
			{"m1 b1 f1 1 k", "m1 b1 f1 2 k", "down", "a a c"},
		}},
		{"one that never answered is not taken for another", []cycle{{"down", "m1 b1 f1 2 k", "down", "a b c"}, {"down", "m1 b1 f1 2 k", "down", "a b c"}}},
		{"a restart between two answers", []cycle{{"m1 b1 f1 1 k", "m1 b1 f1 2 k", "down", "a a c"}, {"m1 b2 f1 1 k", "m1 b1 f1 2 k", "down", "a a c"}}},
		{"a name that leads elsewhere now", []cycle{{"m1 b1 f1 1 k", "m1 b1 f1 1 k", "down", "a a c"}, {"m1 b1 f1 1 k", "m2 b2 f1 2 k", "down", "a b c"}}},
		{"a name that leads to an older genv elsewhere", []cycle{{"m1 b1 f1 1 k", "m1 b1 f1 1 k", "down", "a a c"}, {"m1 b1 f1 1 k", "- - - 2 k2", "down", "a b c"}}},
		{"an older genv meanwhile", []cycle{{"m1 b1 f1 1 k", "m1 b1 f1 2 k", "down", "a a c"}, {"- - - 1 k", "- - - 2 k", "down", "a a c"}}},
		{"a connection by another address", []cycle{{"- - - 1 k", "- - - 1 k", "down", "a a c"}, {"- - - 1 k", "- - - 1v6 k", "down", "a a c"}}},
		{"two that part while the third is silent", []cycle{
			{"m1 b1 f1 1 k", "m1 b1 f1 2 k", "m1 b1 f1 3 k", "a a a"}, {"down", "m1 b1 f1 2 k", "m2 b2 f1 3 k", "a a c"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var m Machines
			names := []string{"a", "b", "c"}
			for i, c := range tt.cycles {
				var got []string
				for _, first := range groupWith(&m, names, []*machineID{idOf(c.a), idOf(c.b), idOf(c.c)}).first {
					got = append(got, names[first])
				}
				require.Equal(t, c.want, strings.Join(got, " "), "cycle %d", i+1)
			}
		})
	}
}

func TestMachinesForgetNamesThatLeft(t *testing.T) {
	var m Machines
	one := idOf("m1 b1 f1 1 k")
	require.Equal(t, []int{0, 0}, groupWith(&m, []string{"a", "b"}, []*machineID{one, one}).first)
	require.True(t, m.duplicate("b", "a").New)
	require.False(t, m.duplicate("b", "a").New, "it is said once")
	require.Equal(t, []int{0}, groupWith(&m, []string{"b"}, []*machineID{nil}).first)
	require.Empty(t, m.Twins)
	require.Empty(t, m.reported)
	require.Equal(t, []int{0, 1}, groupWith(&m, []string{"a", "b"}, []*machineID{one, nil}).first, "b may lead anywhere by now")
}

// TestGroupsByConnectionsOfMachinesThatSayWhoTheyAre: they are those by what the machines say, so
// whether another name needs them to be looked at changes nothing.
func TestGroupsByConnectionsOfMachinesThatSayWhoTheyAre(t *testing.T) {
	joined := 0
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 1))
		var names []string
		var ids []*machineID
		for i := range 1 + random.IntN(9) {
			names = append(names, fmt.Sprint(i))
			id := idOf(fmt.Sprintf("m%d b f %d k%d", random.IntN(2), random.IntN(2), random.IntN(3)))
			if random.IntN(4) == 0 {
				id.peer = remote.Peer{}
			}
			ids = append(ids, id)
		}
		var m Machines
		alone := m.group(names, ids)
		other := m.group(append(names, "other"), append(ids, idOf("- - - elsewhere k")))
		require.Equal(t, other.first[:len(ids)], alone.first, "seed %d", seed)
		require.Equal(t, other.disputed, alone.disputed, "seed %d", seed)
		for i, first := range alone.first {
			joined += min(i-first, 1)
		}
	}
	require.Greater(t, joined, 2000)
}

// Grouping thousands of names is cheap, even if all are one machine.
func BenchmarkMachines(b *testing.B) {
	for name, n := range map[string]int{"distinct": 1000, "one": 1} {
		b.Run(name, func(b *testing.B) {
			var m Machines
			names, ids := make([]string, 1000), make([]*machineID, 1000)
			for i := range names {
				names[i] = fmt.Sprint(i)
				ids[i] = idOf(fmt.Sprintf("m%d b f %d k", i%n, i))
			}
			for b.Loop() {
				groupWith(&m, names, ids)
			}
		})
	}
}

// groupWith groups names, and remembers that for the next time.
func groupWith(m *Machines, names []string, ids []*machineID) *grouping {
	g := m.group(names, ids)
	*m = m.next(names, g)
	return g
}

// A host that claims to be another machine is named.
func TestDisputedMachinesAreNamed(t *testing.T) {
	var m Machines
	g := m.group([]string{"a", "b", "c"}, []*machineID{idOf("m1 b1 f1 1 k1"), idOf("m1 b1 f1 2 k2"), idOf("m1 b1 f1 3 k1")})
	require.Equal(t, [][2]int{{0, 1}}, g.disputed)
}

// unknownPeers is a Link to hosts of which only the snapshots are known.
type unknownPeers struct{ Link }

func (unknownPeers) About(remote.Host) agent.About { return agent.About{} }

func TestMachinesWithoutAMachineID(t *testing.T) {
	of := func(boot, folder string) *snapshot.Snapshot {
		return &snapshot.Snapshot{BootID: boot, StateFolder: folder}
	}
	a := &Asker{Link: unknownPeers{}}
	var all snapshot.Cluster
	for name, s := range map[string]*snapshot.Snapshot{"a": of("boot1", "1:2/3"), "b": of("boot1", "1:2/3"), "rebooted": of("boot2", "1:2/3"), "container": of("boot1", "1:2/4"), "old": of("", "")} {
		a.Hosts = append(a.Hosts, remote.Host{Name: name})
		all.Hosts = append(all.Hosts, snapshot.Host{Name: snapshot.Hostname(name), Snapshot: s})
	}
	names, ids, _ := identify(a, all)
	for i := range ids {
		for j := range ids {
			pair := names[i] + names[j]
			require.Equal(t, i != j && (pair == "ab" || pair == "ba"), i != j && ids[i].same(ids[j]), pair)
		}
	}
}
