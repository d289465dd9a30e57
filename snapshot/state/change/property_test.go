package change_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/state/statetest"
)

// Whatever a user asks for, what other users have stays as it was, and no process is in
// an environment of another user than its own.
func TestPropertyAUserChangesNothingOfOthers(t *testing.T) {
	t.Parallel()
	made := map[string]int{}
	for seed := range proctest.Cases(250) {
		r, f := rand.New(rand.NewPCG(seed, 14)), files()
		by := []snapshot.UID{alice, bob, alice, bob, 1003}[r.IntN(5)]
		for range 40 {
			c := anyChange(r)
			data := proctest.Try(json.Marshal(c)).OK(t)
			asked := proctest.Try(change.Decode(data)).OK(t, "%s", data)
			next := reread(t, f)
			prepared, err := asked.Prepare(asker(by))
			if err == nil {
				_, err = asked.Apply(next, prepared)
			}
			if err != nil {
				continue
			}
			made[kindOf(c)]++
			require.Equal(t, ofOthers(f, by), ofOthers(next, by), "seed %d, uid %d: %s", seed, by, data)
			requireOwnProcesses(t, next)
			f = next
			if r.IntN(8) == 0 {
				f.RemoveEmpty(nil) // as each reading of the files does
			}
		}
	}
	require.Len(t, made, 5, "each kind of change was made: %v", made)
}

// others is what belongs to the users other than one.
type others struct {
	environments []snapshot.Environment
	attachments  map[snapshot.DeviceIndex][]snapshot.Attachment
}

func ofOthers(f *state.Files, uid snapshot.UID) others {
	o := others{attachments: map[snapshot.DeviceIndex][]snapshot.Attachment{}}
	for _, e := range f.Environments {
		if e.UID != uid {
			o.environments = append(o.environments, e)
		}
	}
	for _, d := range f.Devices {
		for _, a := range d.Attachments {
			if env := f.Environment(a.EID); env != nil && env.UID != uid {
				o.attachments[d.Index] = append(o.attachments[d.Index], a)
			}
		}
	}
	return o
}

// requireOwnProcesses: each process is registered for its owner, or is root's.
func requireOwnProcesses(t *testing.T, f *state.Files) {
	t.Helper()
	seen := map[snapshot.PID]bool{}
	for _, e := range f.Environments {
		for _, pid := range e.PIDs {
			owner, exists := owners[pid]
			require.True(t, exists && (owner == e.UID || owner == 0), "process %d of uid %d is in an environment of uid %d", pid, owner, e.UID)
			require.False(t, seen[pid], "process %d is in two environments", pid)
			seen[pid] = true
		}
	}
}

func anyChange(r *rand.Rand) change.Change {
	eid := pick[snapshot.EnvID](r, "10", "20", "10", "20", "x", "12", "22", "30")
	pid := pick[snapshot.PID](r, 10, 11, 12, 20, 21, 22, 30, 90, 99)
	kernel := pick(r, "k-1", "k-2", "k-3")
	indices := []snapshot.DeviceIndex{snapshot.DeviceIndex(r.IntN(4)), snapshot.DeviceIndex(r.IntN(4))}[:r.IntN(3)]
	states := make(map[snapshot.DeviceIndex]gpus.State)
	for _, index := range indices {
		states[index] = pick(r, gpus.States()...)
	}
	var config snapshot.EnvConfig
	config.Name = pick(r, "", "a name", "other")
	config.GPUMemory = pick(r, snapshot.Memory{}, snapshot.MustMemory("4g"), snapshot.MustMemory("70g"))
	if n := r.IntN(4); n > 0 {
		config.GPUs = &n
	}
	if r.IntN(2) == 0 {
		kernel = ""
	} else {
		pid = 0
	}
	switch r.IntN(5) {
	case 0:
		return change.Change{Enter: &change.Enter{EID: eid, PID: pid, Kernel: kernel, Config: config, Attach: r.IntN(2) == 0, OverSubscribe: r.IntN(2) == 0, Availability: state.Availability{States: states}}}
	case 1:
		a := &change.Attach{AttachRequest: state.AttachRequest{EID: eid, Indices: indices, Memory: config.GPUMemory, OverSubscribe: r.IntN(2) == 0}}
		a.Configured, a.Exact, a.Unregistered = r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(2) == 0
		if len(indices) == 0 {
			a.Count = r.IntN(4)
		}
		return change.Change{Attach: a}
	case 2:
		return change.Change{Detach: &change.Detach{EID: eid, Indices: indices, Unregistered: r.IntN(2) == 0}}
	case 3:
		return change.Change{Configure: &change.Configure{EID: eid, Set: config, Clear: []string{change.Name, change.GPUMemory, change.GPUs}[:r.IntN(4)]}}
	}
	return change.Change{Leave: &change.Leave{PID: pid, Kernel: kernel, Own: r.IntN(2) == 0}}
}

func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

func kindOf(c change.Change) string {
	data, _ := json.Marshal(c) // it was marshalled before
	var kinds map[string]json.RawMessage
	_ = json.Unmarshal(data, &kinds)
	for kind := range kinds {
		return kind
	}
	return ""
}

// A user who asks for as much as possible leaves room for the others, and the files stay readable.
func TestAShareIsBounded(t *testing.T) {
	commas := func(n int) string { return fmt.Sprintf("%0200d", n) + "," }
	for name, request := range map[string]func(n int) change.Change{
		"environments": func(n int) change.Change {
			return change.Change{Enter: &change.Enter{EID: snapshot.EnvID(fmt.Sprint("e", n)), Kernel: fmt.Sprint("k", n)}}
		},
		"long names": func(n int) change.Change {
			return change.Change{Enter: &change.Enter{EID: snapshot.EnvID(commas(n)), Kernel: commas(n), Config: snapshot.EnvConfig{Name: commas(n)}}}
		},
		"kernels": func(n int) change.Change {
			return change.Change{Enter: &change.Enter{EID: "one", Kernel: fmt.Sprint(n)}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, accepted := files(), 0
			for n := range 5000 {
				next := *f
				next.Environments = slices.Clone(f.Environments)
				if _, err := request(n).Apply(&next, asker(bob)); err != nil {
					require.ErrorIs(t, err, state.ErrRequest)
					require.ErrorContains(t, err, "uid 1002 has more environments, processes and kernels than one user may have")
					break
				}
				f, accepted = &next, accepted+1
			}
			require.Greater(t, accepted, 50)
			require.Less(t, accepted, 4000)
			reread(t, f)
			proctest.Try(decoded(t, `{"enter":{"eid":"y","pid":12}}`).Apply(f, asker(alice))).OK(t, "there is room for others")
			proctest.Try(decoded(t, `{"leave":{"pid":20}}`).Apply(f, asker(bob))).OK(t, "and for leaving")
		})
	}
}

// Attachments of many environments to the same devices are bounded too.
func TestAttachmentsAreBounded(t *testing.T) {
	f := files()
	f.MergeDevices(statetest.GPUs(64))
	var refused error
	for n := 0; n < 400 && refused == nil; n++ {
		eid := snapshot.EnvID(fmt.Sprint("e", n))
		proctest.Try(change.Change{Enter: &change.Enter{EID: eid, Kernel: fmt.Sprint("k", n)}}.Apply(f, asker(bob))).OK(t)
		next := reread(t, f)
		if _, refused = (change.Change{Attach: &change.Attach{AttachRequest: state.AttachRequest{EID: eid, Count: 64, OverSubscribe: true}}}).Apply(next, asker(bob)); refused == nil {
			f = next
		}
	}
	require.ErrorIs(t, refused, state.ErrRequest)
	require.ErrorContains(t, refused, "uid 1002 has more attachments than one user may have")
	proctest.Try(decoded(t, `{"attach":{"eid":"10","count":2,"over_subscribe":true}}`).Apply(f, asker(alice))).OK(t, "there is room for others")
}

// All users together fill the files at most so far that they can still be read.
func TestFullFilesCanBeRead(t *testing.T) {
	text := func(n int) string { return fmt.Sprintf("%0250d", n) + ",,,," }
	f := files()
	for n := range 1000 {
		f.Environments = append(f.Environments, snapshot.Environment{
			EID: snapshot.EnvID(text(n)), UID: snapshot.UID(2000 + n), Creation: at("10:00:00"), KernelIDs: []string{text(n)}, Config: snapshot.EnvConfig{Name: text(n)},
		})
	}
	for n := 1000; n < 2000; n++ {
		next := *f
		next.Environments = slices.Clone(f.Environments)
		_, err := change.Change{Enter: &change.Enter{EID: snapshot.EnvID(text(n)), Kernel: text(n), Config: snapshot.EnvConfig{Name: text(n)}}}.Apply(&next, asker(0))
		if err == nil {
			f = &next
			continue
		}
		require.ErrorContains(t, err, "the state files of this host are full")
		require.Greater(t, n, 1000)
		reread(t, f)
		return
	}
	require.Fail(t, "they are never full")
}

// Many users who take all that they can leave some for others.
func TestUsersTogetherLeaveRoom(t *testing.T) {
	f := files()
	enter := func(uid snapshot.UID, n int) error {
		next := *f
		next.Environments = slices.Clone(f.Environments)
		eid := snapshot.EnvID(fmt.Sprintf("%d-%0100d", uid, n)) // so long that not many fill the files
		_, err := change.Change{Enter: &change.Enter{EID: eid, Kernel: string(eid), Config: snapshot.EnvConfig{Name: strings.Repeat("n", 250)}}}.Apply(&next, asker(uid))
		if err == nil {
			f = &next
		}
		return err
	}
	for uid := snapshot.UID(3000); uid < 3020; uid++ {
		n := 0
		for enter(uid, n) == nil {
			n++
		}
		require.Greater(t, n, 20, "uid %d", uid)
	}
	require.ErrorContains(t, enter(3019, 1000), "nearly full, and uid 3019 has its part of them")
	require.NoError(t, enter(alice, 0))
}

// What is asked for twice, since the first answer was an error although the change was made, is made once.
func TestPropertyAskingAgainChangesNothingMore(t *testing.T) {
	t.Parallel()
	made := map[string]int{}
	for seed := range proctest.Cases(250) {
		r, f := rand.New(rand.NewPCG(seed, 15)), files()
		by := []snapshot.UID{alice, bob}[r.IntN(2)]
		for range 40 {
			c := anyChange(r)
			if c.Enter != nil && c.Enter.PID != 0 && r.IntN(2) == 0 {
				c.Enter.EID = ""
			}
			apply := func(f *state.Files) (change.Result, error) {
				prepared, err := c.Prepare(asker(by))
				if err != nil {
					return change.Result{}, err
				}
				return c.Apply(f, prepared)
			}
			next := reread(t, f)
			if _, err := apply(next); err != nil {
				continue
			}
			next = reread(t, next)
			next.RemoveEmpty(nil) // as each reading of the files does
			again := reread(t, next)
			if _, err := apply(again); err == nil {
				again = reread(t, again)
				again.RemoveEmpty(nil)
				require.Equal(t, next, again, "seed %d, uid %d: %+v", seed, by, c)
				made[kindOf(c)]++
			}
			f = next
		}
	}
	require.Len(t, made, 5, "each kind of change was made: %v", made)
}
