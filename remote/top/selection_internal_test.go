package top

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// shuffled is a fleet of the same kind with other hosts, GPUs and processes, in another
// order.
func shuffled(r *rand.Rand) *live.FleetState {
	f := sample()
	for i := range r.IntN(6) {
		f.Hosts = append(f.Hosts, live.FleetHost{Name: snapshot.Hostname(fmt.Sprintf("more-%d", i)), Seen: noon, GPUs: []gpus.GPU{gpu(0, gpus.Busy, "erin"), gpu(1, gpus.Free)}})
		f.Users = append(f.Users, live.FleetUser{Name: snapshot.Username(fmt.Sprintf("user-%d", i)), Attached: r.IntN(9)})
		f.Findings = append(f.Findings, finding(fmt.Sprintf("more-%d", i), "gpu-1", "erin", snapshot.PID(r.IntN(5000)), "act", "something"))
	}
	drop(r, &f.Hosts)
	drop(r, &f.Users)
	drop(r, &f.Findings)
	drop(r, &f.Failed)
	for i := range f.Hosts {
		for j := range f.Hosts[i].GPUs {
			drop(r, &f.Hosts[i].GPUs[j].Processes)
		}
	}
	return f
}

// drop shuffles a list and drops some of it.
func drop[T any](r *rand.Rand, list *[]T) {
	r.Shuffle(len(*list), func(i, j int) { (*list)[i], (*list)[j] = (*list)[j], (*list)[i] })
	*list = (*list)[:r.IntN(len(*list)+1)]
}

// TestTheSelectionStays: whatever updates bring, the selected row is the one that was
// selected by the last key; while it is gone, no row is.
func TestTheSelectionStays(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 1))
	for range 25 {
		m := viewed(t, sample(), 100, 8+r.IntN(20))
		m.press(fmt.Sprint(1+r.IntN(7)), strings.Repeat("s", r.IntN(2)))
		for range 40 {
			if r.IntN(3) == 0 {
				m.press([]string{"j", "k", "g", "G", "pgdown", "pgup", "s", "S"}[r.IntN(8)])
			}
			before, chosen := m.cursor().id, m.cursor().chosen
			m.update(shuffled(r))
			if !chosen {
				continue
			}
			require.Equal(t, before, m.cursor().id)
			there := slices.ContainsFunc(m.rows, func(r tabRow) bool { return r.id == before })
			if !there {
				require.Nil(t, m.selected())
				require.NotContains(t, strings.Join(m.screen(), "\n"), "\n>", "no row is marked")
				continue
			}
			require.Equal(t, before, m.selected().id)
			lines := slices.DeleteFunc(m.screen(), func(line string) bool { return !strings.HasPrefix(line, ">") })
			require.Len(t, lines, 1, "the selected row is visible")
			require.Contains(t, lines[0], strings.Fields(m.line(m.selected()))[0])
		}
	}
}

func TestARowThatIsGone(t *testing.T) {
	m, asked := acting(t)
	m.press("5", "j", "j")
	require.Equal(t, snapshot.PID(4020), m.selected().id.pid)
	f := sample()
	f.Hosts[0].GPUs[2].Processes = nil
	m.update(f)
	require.Nil(t, m.selected())
	for _, key := range []string{"e", "enter", "o", "space"} {
		m.press(key)
		require.Equal(t, browse, m.mode, key)
		require.Equal(t, "process 4020 on gpu-1 isn't here any more: move to select another row", m.message)
	}
	m.press("j")
	require.Equal(t, rowID{tab: tabProcesses, host: "gpu-2", pid: 4000, start: 880123}, m.selected().id, "the row that followed it")
	require.Empty(t, *asked)

	m.update(sample())
	m.press("k")
	require.Equal(t, snapshot.PID(4020), m.selected().id.pid)
	f.Hosts[0].GPUs[2].Processes = sample().Hosts[0].GPUs[2].Processes
	f.Hosts[0].GPUs[2].Processes[0].Start++ // the PID was given to another process
	m.update(f)
	require.Nil(t, m.selected())
	m.update(sample())
	require.Equal(t, snapshot.PID(4020), m.selected().id.pid, "it is the same one again")
}

func TestTheLastRowGoes(t *testing.T) {
	m, _ := acting(t)
	m.press("4")
	f := sample()
	f.Findings = nil
	m.update(f)
	require.Nil(t, m.selected())
	m.update(sample())
	f = sample()
	f.Findings = f.Findings[1:]
	m.update(f)
	require.Nil(t, m.selected(), "the other finding isn't selected instead")
	m.press("t")
	require.Equal(t, browse, m.mode)
	m.press("k")
	require.Equal(t, "f2", m.selected().id.finding)
}
