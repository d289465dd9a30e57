package change_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
)

const (
	alice snapshot.UID = 1001
	bob   snapshot.UID = 1002
)

// owners are the real uids of the processes that exist.
var owners = map[snapshot.PID]snapshot.UID{10: alice, 11: alice, 12: alice, 20: bob, 21: bob, 22: bob, 90: 0}

var errGone = errors.New("the process is gone")

func asker(uid snapshot.UID) change.Asker {
	return change.Asker{
		UID: uid, PID: 77, Now: at("12:00:00"),
		Owner: func(pid snapshot.PID) (snapshot.UID, error) {
			if uid, ok := owners[pid]; ok {
				return uid, nil
			}
			return 0, errGone
		},
		Username: func(uid snapshot.UID) snapshot.Username {
			return map[snapshot.UID]snapshot.Username{0: "root", alice: "alice", bob: "bob"}[uid]
		},
	}
}

// files are two environments: alice's is attached to device 0, and bob's to device 1, of three.
func files() *state.Files {
	two := 2
	f := &state.Files{Environments: []snapshot.Environment{
		{
			EID: "10", UID: alice, Username: "alice", Creation: at("10:00:00"), PIDs: []snapshot.PID{10, 11}, KernelIDs: []string{"k-1"},
			Config: snapshot.EnvConfig{Name: "hers", GPUs: &two},
		},
		{EID: "20", UID: bob, Username: "bob", Creation: at("10:00:00"), PIDs: []snapshot.PID{20}, KernelIDs: []string{}},
	}}
	for i := range 3 {
		f.Devices = append(f.Devices, snapshot.Device{Index: snapshot.DeviceIndex(i), TotalMemory: snapshot.MustMemory("80g"), Attachments: []snapshot.Attachment{}})
	}
	f.Devices[0].Attachments = append(f.Devices[0].Attachments, snapshot.Attachment{EID: "10", Time: at("10:00:00")})
	f.Devices[1].Attachments = append(f.Devices[1].Attachments, snapshot.Attachment{EID: "20", Time: at("10:00:00")})
	return f
}

func at(clock string) snapshot.Date {
	d, err := snapshot.ParseDate("20/11/2026 " + clock)
	if err != nil {
		panic(err)
	}
	return d
}

func decoded(t *testing.T, text string) change.Change {
	t.Helper()
	c, err := change.Decode([]byte(text))
	require.NoError(t, err, text)
	return c
}

func TestEnterIsForTheOwnerOfTheProcess(t *testing.T) {
	for name, row := range map[string]struct {
		change string
		by     snapshot.UID
		uid    snapshot.UID // of the environment
		eid    snapshot.EnvID
		is     error
	}{
		"a process of one's own":           {`{"enter":{"pid":12}}`, alice, alice, "12", nil},
		"an id that an older process has":  {`{"enter":{"pid":22,"eid":"22"}}`, bob, bob, "22", nil},
		"a process of another user":        {`{"enter":{"pid":21}}`, alice, 0, "", state.ErrNotOwner},
		"a process of root":                {`{"enter":{"pid":90}}`, alice, 0, "", state.ErrNotOwner},
		"one that is gone":                 {`{"enter":{"pid":99}}`, alice, 0, "", errGone},
		"root for another user":            {`{"enter":{"pid":21,"eid":"x"}}`, 0, bob, "x", nil},
		"root for another user in a third": {`{"enter":{"pid":21,"eid":"10"}}`, 0, 0, "", state.ErrNotOwner},
		"root's process in another's":      {`{"enter":{"pid":90,"eid":"10"}}`, 0, alice, "10", nil},
		"one's own in another's":           {`{"enter":{"pid":21,"eid":"10"}}`, bob, 0, "", state.ErrNotOwner},
		"a kernel in a new one":            {`{"enter":{"kernel_id":"k-2","eid":"y"}}`, bob, bob, "y", nil},
		"a kernel in another's":            {`{"enter":{"kernel_id":"k-2","eid":"10"}}`, bob, 0, "", state.ErrNotOwner},
		"an id that another's kernel has":  {`{"enter":{"kernel_id":"k-1","eid":"20"}}`, bob, bob, "20", nil},
		"the same, in a new one":           {`{"enter":{"kernel_id":"k-1","eid":"y"}}`, bob, bob, "y", nil},
		"root, for a kernel of bob's":      {`{"enter":{"kernel_id":"k-1","eid":"20"}}`, 0, bob, "20", nil},
		"a kernel that is in another":      {`{"enter":{"kernel_id":"k-1","eid":"y"}}`, alice, 0, "", state.ErrActive},
		"one that is in another":           {`{"enter":{"pid":20,"eid":"y"}}`, bob, 0, "", state.ErrActive},
	} {
		t.Run(name, func(t *testing.T) {
			f, c := files(), decoded(t, row.change)
			by, err := c.Prepare(asker(row.by))
			result := change.Result{}
			if err == nil {
				result, err = c.Apply(f, by)
			}
			require.ErrorIs(t, err, row.is)
			require.Equal(t, row.eid, result.EID)
			if row.is == nil {
				env := f.Environment(row.eid)
				require.Equal(t, row.uid, env.UID)
				require.Equal(t, asker(0).Username(row.uid), env.Username)
			}
		})
	}
}

// Any user can see the ids of kernels, and register them first: these are for oneself alone.
func TestAKernelIDIsOfEachUser(t *testing.T) {
	f := files()
	apply := func(text string, by snapshot.UID) change.Result {
		t.Helper()
		result, err := decoded(t, text).Apply(f, asker(by))
		require.NoError(t, err)
		return result
	}
	apply(`{"enter":{"kernel_id":"k-1","eid":"20"}}`, bob)
	for uid, eid := range map[snapshot.UID]snapshot.EnvID{alice: "10", bob: "20", 0: "10"} { // root's is the first
		require.Equal(t, eid, f.EnvironmentOfKernel("k-1", uid).EID)
	}
	require.Nil(t, f.EnvironmentOfKernel("k-1", 1003))
	require.Empty(t, apply(`{"leave":{"kernel_id":"k-1"}}`, 1003))
	require.Equal(t, snapshot.EnvID("20"), apply(`{"leave":{"kernel_id":"k-1"}}`, bob).EID)
	require.Equal(t, []string{"k-1"}, f.Environment("10").KernelIDs, "alice's stays")
	require.Empty(t, f.Environment("20").KernelIDs)
	require.Equal(t, snapshot.EnvID("10"), apply(`{"leave":{"kernel_id":"k-1"}}`, 0).EID, "root may")
}

func TestErrorsKeepTheirClass(t *testing.T) {
	f := files()
	_, err := decoded(t, `{"attach":{"eid":"10","count":3}}`).Apply(f, asker(alice))
	got := change.DecodeError(change.EncodeError(err))
	require.Equal(t, err.Error(), got.Error())
	require.ErrorIs(t, got, state.ErrUnavailable)
	var before, after *state.UnavailableError
	require.ErrorAs(t, err, &before)
	require.ErrorAs(t, got, &after)
	require.Equal(t, before, after)
	require.NotEmpty(t, after.Conflicts)
}

func TestResultsAreJSON(t *testing.T) {
	result, err := decoded(t, `{"configure":{"eid":"10","set":{"gpu_memory":"4g"},"clear":["name"]}}`).Apply(files(), asker(alice))
	require.NoError(t, err)
	two := 2
	require.Equal(t, change.Config{GPUMemory: snapshot.MustMemory("4g"), GPUs: &two}, result.Config)
	data, err := json.Marshal(result)
	require.NoError(t, err)
	var again change.Result
	require.NoError(t, json.Unmarshal(data, &again))
	require.Equal(t, result, again)
}
