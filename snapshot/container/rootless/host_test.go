package rootless_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/container/record"
	"github.com/seed-3119e985/genv/snapshot/container/rootless"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

const (
	alice, mallory = snapshot.UID(4001), snapshot.UID(4002)
)

var id = strings.Repeat("ab", 32)

// machine is a host with two devices and two processes, one of each user.
type machine struct {
	rootless.Host
	t      *testing.T
	owners map[snapshot.PID]snapshot.UID
	hers   snapshot.PID
	his    snapshot.PID
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	dir := t.TempDir()
	m := &machine{t: t, owners: map[snapshot.PID]snapshot.UID{}}
	keeper := &record.Keeper{Run: filepath.Join(dir, "run")}
	m.Host = rootless.Host{
		Store: disk.New(filepath.Join(dir, "state"), disk.Config{Keeps: keeper.Keeps}), Run: keeper.Run, Proc: proc.FS{},
		Hardware: func() []hardware.Device { return nil }, Now: time.Now,
		ListDevices: func(context.Context) ([]snapshot.Device, error) {
			return []snapshot.Device{{Index: 0, TotalMemory: snapshot.MustMemory("80g")}, {Index: 1, TotalMemory: snapshot.MustMemory("80g")}}, nil
		},
		Username: func(context.Context, snapshot.UID) snapshot.Username { return "" },
	}
	found, err := m.ListDevices(t.Context())
	require.NoError(t, err)
	_, err = m.Store.RegisterDevices(t.Context(), found)
	require.NoError(t, err)
	m.hers, m.his = m.process(alice), m.process(mallory)
	return m
}

func (m *machine) process(uid snapshot.UID) snapshot.PID {
	m.t.Helper()
	cmd := exec.Command("sleep", "1000")
	require.NoError(m.t, cmd.Start())
	m.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	pid := snapshot.PID(cmd.Process.Pid) //nolint:gosec // the kernel's PIDs fit
	m.owners[pid] = uid
	return pid
}

func (m *machine) ask(uid snapshot.UID, pid snapshot.PID, a rootless.Asked) (grant.Granted, error) {
	return m.Do(m.t.Context(), a, rootless.Asker{
		UID: uid, PID: pid, Turn: func(context.Context) (func(), error) { return func() {}, nil },
		Owner: func(pid snapshot.PID) (snapshot.UID, error) {
			if owner, known := m.owners[pid]; known {
				return owner, nil
			}
			return 0, proc.ErrGone
		},
	})
}

func (m *machine) environments() []snapshot.Environment {
	m.t.Helper()
	files, err := m.Store.Read(m.t.Context())
	require.NoError(m.t, err)
	return files.Environments
}

func claim(n int) *grant.Request { return &grant.Request{Count: n} }

func TestAUserGetsDevicesForOneself(t *testing.T) {
	m := newMachine(t)
	hers, err := m.ask(alice, m.hers, rootless.Asked{ID: id, Runtime: "docker", Claim: claim(1)})
	require.NoError(t, err)
	require.Equal(t, alice, *hers.UID)
	require.EqualValues(t, id[:12], hers.EID)
	require.Equal(t, []snapshot.DeviceIndex{0}, hers.Devices)

	// The same id, of another user's engine: another environment and another record.
	his, err := m.ask(mallory, m.his, rootless.Asked{ID: id, Runtime: "docker", Claim: &grant.Request{Count: 1, EID: hers.EID}})
	require.NoError(t, err)
	require.Equal(t, mallory, *his.UID)
	require.NotEqual(t, hers.EID, his.EID)
	require.Equal(t, []snapshot.DeviceIndex{1}, his.Devices)
	ids, err := record.List(m.Run)
	require.NoError(t, err)
	require.Len(t, ids, 2)
	require.NotContains(t, ids, id, "no engine of root's has a container with that id")

	// What other users have stays theirs.
	for name, a := range map[string]rootless.Asked{
		"her process as the init":     {ID: id, Init: m.hers},
		"a container without a claim": {ID: strings.Repeat("cd", 32), Init: m.his},
		"a process that has ended":    {ID: id, Init: 1 << 22},
	} {
		_, err := m.ask(mallory, m.his, a)
		require.Error(t, err, name)
	}
	_, err = m.ask(mallory, m.hers, rootless.Asked{ID: strings.Repeat("cd", 32), Claim: claim(1)})
	require.ErrorIs(t, err, state.ErrNotOwner)
	_, err = m.ask(mallory, m.his, rootless.Asked{ID: strings.Repeat("cd", 32), Claim: &grant.Request{Count: 1}})
	require.Error(t, err, "all devices are taken")
	_, err = m.ask(mallory, m.his, rootless.Asked{ID: id, Ended: true})
	require.NoError(t, err)
	left := m.environments()
	require.Len(t, left, 1)
	require.Equal(t, hers.EID, left[0].EID)

	init := m.process(alice)
	_, err = m.ask(alice, m.hers, rootless.Asked{ID: id, Init: init})
	require.NoError(t, err)
	r, err := record.Read(m.Run, record.OfUser(alice, id))
	require.NoError(t, err)
	require.Equal(t, init, r.PID)
	require.Equal(t, record.Rootless, r.Proof)
	_, err = m.ask(alice, m.hers, rootless.Asked{ID: id, Ended: true})
	require.NoError(t, err)
	require.Len(t, m.environments(), 1, "its init runs: it was started again")
}

// A user who takes the short ID of another user's container first, and those after it, gets
// in the way of nothing.
func TestAnIDThatIsTakenCostsOthersNothing(t *testing.T) {
	m := newMachine(t)
	shared := &grant.Request{Count: 1, OverSubscribe: true}
	taken := map[string]snapshot.EnvID{}
	for _, rest := range []string{"1", "2", "3"} {
		own := id[:12] + strings.Repeat(rest, 52)
		g, err := m.ask(mallory, m.process(mallory), rootless.Asked{ID: own, Claim: shared})
		require.NoError(t, err)
		taken[own] = g.EID
	}
	hers, err := m.ask(alice, m.hers, rootless.Asked{ID: id, Claim: shared})
	require.NoError(t, err)
	require.EqualValues(t, id[:12]+"-4", hers.EID)
	require.Equal(t, alice, *hers.UID)
	init := m.process(alice)
	_, err = m.ask(alice, m.hers, rootless.Asked{ID: id, Init: init})
	require.NoError(t, err)

	// What the user does with these ids and with hers is about the user's own containers.
	_, err = m.ask(mallory, m.his, rootless.Asked{ID: id, Init: m.his})
	require.Error(t, err, "another container, which has no claim")
	_, err = m.ask(mallory, m.his, rootless.Asked{ID: id, Ended: true})
	require.NoError(t, err)
	for own := range taken {
		_, err = m.ask(mallory, m.his, rootless.Asked{ID: own, Init: init})
		require.ErrorIs(t, err, state.ErrNotOwner)
	}
	_, err = m.ask(mallory, m.his, rootless.Asked{ID: id, Claim: &grant.Request{Count: 1, OverSubscribe: true, EID: hers.EID}})
	require.NoError(t, err)
	for _, env := range m.environments() {
		require.Equal(t, env.EID == hers.EID, env.UID == alice, env.EID)
		require.Equal(t, env.EID == hers.EID, slices.Contains(env.PIDs, init), env.EID)
	}
	_, err = m.ask(alice, m.hers, rootless.Asked{ID: strings.Repeat("cd", 32), Ended: true})
	require.NoError(t, err)
	require.Len(t, m.environments(), 5)
}

func TestWhatNoRuntimeAsksForIsRefused(t *testing.T) {
	m := newMachine(t)
	for name, a := range map[string]rootless.Asked{
		"nothing":             {ID: id},
		"two things":          {ID: id, Claim: claim(1), Ended: true},
		"no id":               {ID: "../../etc/passwd", Claim: claim(1)},
		"no process":          {ID: id, Init: -1},
		"fewer than none":     {ID: id, Claim: claim(-1)},
		"too many":            {ID: id, Claim: claim(1 << 20)},
		"an endless list":     {ID: id, Claim: &grant.Request{Names: make([]string, 5000)}},
		"a name of two lines": {ID: id, Claim: &grant.Request{Count: 1, Called: "a\nb"}},
		"no environment":      {ID: id, Claim: &grant.Request{Count: 1, EID: "a\nb"}},
	} {
		_, err := m.ask(mallory, m.his, a)
		require.ErrorIs(t, err, state.ErrRequest, name)
	}
	_, err := m.ask(mallory, m.his, rootless.Asked{ID: id, Runtime: "a b", Claim: claim(1)})
	require.ErrorIs(t, err, record.ErrInvalid)
	require.Empty(t, m.environments())
	_, err = os.Stat(record.Dir(m.Run))
	require.True(t, os.IsNotExist(err), "no record was written")
}

func TestAUserHasABoundedNumberOfContainers(t *testing.T) {
	m := newMachine(t)
	uid := mallory
	for n := range 256 {
		r := record.Record{ID: record.OfUser(uid, fmt.Sprint(n)), UID: &uid, Proof: record.Rootless, StartedAt: time.Now()}
		require.NoError(t, record.Write(m.Run, r))
	}
	_, err := m.ask(mallory, m.his, rootless.Asked{ID: id, Claim: claim(1)})
	require.ErrorContains(t, err, "more containers")
	require.Empty(t, m.environments())
	_, err = m.ask(alice, m.hers, rootless.Asked{ID: id, Claim: &grant.Request{Count: 1, OverSubscribe: true}})
	require.NoError(t, err, "others have their own")
}
