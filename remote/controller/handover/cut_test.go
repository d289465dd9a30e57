package handover_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/controller/handover"
	"github.com/seed-3119e985/genv/snapshot"
)

// long is a memory that needs several requests. All times in it are the one at which it was judged, and
// each host has a text with its version.
func long(version string, judged time.Time) controller.FleetMemory {
	const hosts = 120
	m, random := memoryOf(hosts), rand.New(rand.NewPCG(1, uint64(len(version))))
	m.Rules.Time, m.Operator.Hold.Reason = judged, version
	for i := range hosts {
		host := snapshot.Hostname(fmt.Sprintf("gpu-%04d", i))
		m.Rules.Idle[string(host)+"/alice/1/0"] = judged
		text := make([]byte, 8000)
		for j := range text {
			text[j] = byte('!' + random.IntN(90))
		}
		m.Rules.Stuck[snapshot.ProcessKey{Host: host, PID: 8, Start: 5}] = version + string(text)
		m.Rules.Present["env-devices/"+string(host)+"/7/100"] = enforce.Presence{Since: judged, Cycles: 6}
	}
	return m
}

// longDocuments are two memories, one after the other, of which all parts differ.
func longDocuments(t *testing.T, later time.Time) (before, after *handover.Documents) {
	first, second := long("v1", noon), long("v2", later)
	return encode(t, &first, noon), encode(t, &second, later)
}

// versions counts the hosts of each version, and checks that of each host all is of one.
func versions(t *testing.T, m *controller.FleetMemory) map[string]int {
	t.Helper()
	count := map[string]int{}
	for host := range m.Rules.Hosts {
		version := m.Rules.Stuck[snapshot.ProcessKey{Host: host, PID: 8, Start: 5}][:2]
		since := map[string]time.Time{"v1": noon, "v2": noon.Add(time.Minute)}[version]
		require.True(t, since.Equal(m.Rules.Idle[string(host)+"/alice/1/0"]), "%s", host)
		require.True(t, since.Equal(m.Rules.Present["env-devices/"+string(host)+"/7/100"].Since), "%s", host)
		count[version]++
	}
	return count
}

// A leader is killed between two requests of a memory: a follower has each host from before or after. The
// memory is then as old as the oldest part, and what operators asked for last holds.
func TestACutBetweenTwoRequests(t *testing.T) {
	later := noon.Add(time.Minute)
	before, after := longDocuments(t, later)
	for cut := 0; ; cut++ {
		s, now := newStore(), later
		p := handover.Publisher{Store: s, Key: "/lab"}
		require.NoError(t, p.Publish(t.Context(), 7, before))
		s.requests, s.most = nil, cut
		failed := p.Publish(t.Context(), 7, after)
		got, missing, err := follow(t, s, &now).Memory(now)
		require.NoError(t, err)
		require.Zero(t, missing)
		count := versions(t, &got)
		t.Log(cut, "requests:", count)
		require.Len(t, got.Rules.Hosts, 120)
		if failed == nil {
			require.Equal(t, map[string]int{"v2": 120}, count)
			require.Equal(t, later, got.Rules.Time)
			require.Greater(t, cut, 2)
			return
		}
		require.NotZero(t, count["v1"])
		require.Equal(t, noon, got.Rules.Time, "it is as old as its oldest part")
		require.Equal(t, cut > 0, count["v2"] > 0)
		require.Equal(t, map[bool]string{false: "v1", true: "v2"}[cut > 0], got.Operator.Hold.Reason)
	}
}

// A new leader is killed between two requests of its first memory. What the leader before wrote counts
// times by another clock: the next one doesn't mix it with that of the new one.
func TestACutOfTheFirstMemory(t *testing.T) {
	later := noon.Add(time.Minute)
	before, after := longDocuments(t, later)
	for cut := 0; ; cut++ {
		s, now := newStore(), later
		require.NoError(t, (&handover.Publisher{Store: s, Key: "/lab"}).Publish(t.Context(), 7, before))
		s.requests, s.epoch, s.most = nil, 9, cut
		failed := (&handover.Publisher{Store: s, Key: "/lab"}).Publish(t.Context(), 9, after)
		f := follow(t, s, &now)
		got, missing, err := f.Memory(now)
		require.NoError(t, err)
		count := versions(t, &got)
		t.Log(cut, "requests:", count, missing, "parts are missing")
		switch {
		case cut == 0:
			require.Equal(t, map[string]int{"v1": 120}, count)
		case failed != nil:
			require.Equal(t, len(got.Rules.Hosts), count["v2"])
			require.Positive(t, missing)
			require.Less(t, missing, 64)
			require.Equal(t, later, got.Rules.Time)
			require.EqualValues(t, 9, f.Epoch())
			require.Equal(t, "v2", got.Operator.Hold.Reason)
		default:
			require.Equal(t, map[string]int{"v2": 120}, count)
			return
		}
	}
}

// An etcd that carries out one request a time has the whole memory in the end.
func TestWhatWasWrittenIsNotWrittenAgain(t *testing.T) {
	s, now := newStore(), noon
	m := long("v1", noon)
	d := encode(t, &m, now)
	p := handover.Publisher{Store: s, Key: "/lab"}
	tries := 1
	for s.most = 1; p.Publish(t.Context(), 7, d) != nil; s.most++ {
		tries++
		require.Less(t, tries, 20)
	}
	require.Greater(t, tries, 2)
	got, missing, err := follow(t, s, &now).Memory(now)
	require.NoError(t, err)
	require.Zero(t, missing)
	require.Equal(t, map[string]int{"v1": 120}, versions(t, &got))
}

// One of several requests is carried out late, after its parts were written again: it changes nothing.
func TestARequestOfSeveralThatArrivesLate(t *testing.T) {
	later := noon.Add(time.Minute)
	s, now := newStore(), later
	before, after := longDocuments(t, later)
	p := handover.Publisher{Store: s, Key: "/lab"}
	s.stalls = true
	require.Error(t, p.Publish(t.Context(), 7, before))
	s.stalls, s.most = false, 1
	late := s.late
	require.Error(t, p.Publish(t.Context(), 7, after))
	s.most = -1
	require.False(t, late())
	require.NoError(t, p.Publish(t.Context(), 7, after))
	got, _, err := follow(t, s, &now).Memory(now)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"v2": 120}, versions(t, &got))
}
