package change_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/state/statetest"
)

var at = statetest.At

const (
	alice snapshot.UID = 1001
	bob   snapshot.UID = 1002
)

// owners are the real uids of the processes that exist.
var owners = map[snapshot.PID]snapshot.UID{10: alice, 11: alice, 12: alice, 20: bob, 21: bob, 22: bob, 90: 0}

var errGone = errors.New("the process is gone")

func asker(uid snapshot.UID) change.Requester {
	return change.Requester{
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
	f := &state.Files{Environments: []snapshot.Environment{
		{
			EID: "10", UID: alice, Username: "alice", Creation: at("10:00:00"), PIDs: []snapshot.PID{10, 11}, KernelIDs: []string{"k-1"},
			Config: snapshot.EnvConfig{Name: "hers", GPUs: new(2)},
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

func decoded(t *testing.T, text string) change.Change {
	t.Helper()
	c := proctest.Try(change.Decode([]byte(text))).OK(t, text)
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
		return proctest.Try(decoded(t, text).Apply(f, asker(by))).OK(t)
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
	result := proctest.Try(decoded(t, `{"configure":{"eid":"10","set":{"gpu_memory":"4g"},"clear":["name"]}}`).Apply(files(), asker(alice))).OK(t)
	require.Equal(t, snapshot.EnvConfig{GPUMemory: snapshot.MustMemory("4g"), GPUs: new(2)}, result.Config)
	data := proctest.Try(json.Marshal(result)).OK(t)
	var again change.Result
	require.NoError(t, json.Unmarshal(data, &again))
	require.Equal(t, result, again)
}

// requests are a change of each kind, with every field.
var requests = []string{
	`{"enter":{"pid":12}}`,
	`{"enter":{"eid":"x","pid":12,"config":{"name":"my-env","gpu_memory":"4g","gpus":2},"attach":true,"over_subscribe":true,"states":{"0":"busy","2":"failed"}}}`,
	`{"enter":{"eid":"x","kernel_id":"k-2"}}`,
	`{"attach":{"eid":"10","count":2,"states":{"1":"unknown"}}}`,
	`{"attach":{"eid":"x","indices":[0,2],"over_subscribe":true,"gpu_memory":"4g","configured":true,"exact":true,"unregistered":true}}`,
	`{"detach":{"eid":"10"}}`,
	`{"detach":{"eid":"10","indices":[0],"unregistered":true}}`,
	`{"configure":{"eid":"10","clear":["name","gpu-memory","gpus"],"set":{"gpus":1}}}`,
	`{"leave":{"pid":11,"own":true}}`,
	`{"leave":{"kernel_id":"k-1"}}`,
}

func TestDecodeIsTheReverseOfMarshal(t *testing.T) {
	for _, text := range requests {
		require.JSONEq(t, text, string(proctest.Try(json.Marshal(decoded(t, text))).OK(t)))
	}
}

func TestDecodeRefuses(t *testing.T) {
	long := strings.Repeat("x", 257)
	for name, text := range map[string]string{
		"nothing":                    ``,
		"no JSON":                    `enter`,
		"null":                       `null`,
		"a list":                     `[]`,
		"no operation":               `{}`,
		"an operation that is null":  `{"enter":null}`,
		"two operations":             `{"leave":{"pid":1},"enter":{"pid":1}}`,
		"two values":                 `{"leave":{"pid":1}}{"leave":{"pid":1}}`,
		"something behind it":        `{"leave":{"pid":1}} x`,
		"an unknown operation":       `{"reset":{}}`,
		"an unknown field":           `{"leave":{"pid":1,"uid":0}}`,
		"a user":                     `{"enter":{"pid":12,"uid":0}}`,
		"a name of a user":           `{"enter":{"pid":12,"username":"root"}}`,
		"a date":                     `{"attach":{"eid":"10","count":1,"at":"20/11/2026 10:00:00"}}`,
		"not UTF-8":                  "{\"detach\":{\"eid\":\"\xff\"}}",
		"more bytes than the limit":  `{"detach":{"eid":"10"}}` + strings.Repeat(" ", change.MaxBytes),
		"a process that is negative": `{"leave":{"pid":-1}}`,
		"a process that is too high": `{"leave":{"pid":4294967297}}`,
		"neither process nor kernel": `{"leave":{}}`,
		"process and kernel":         `{"leave":{"pid":1,"kernel_id":"k"}}`,
		"a kernel without an id":     `{"enter":{"kernel_id":"k"}}`,
		"a long kernel id":           `{"leave":{"kernel_id":"` + long + `"}}`,
		"no environment":             `{"detach":{}}`,
		"a long environment":         `{"detach":{"eid":"` + long + `"}}`,
		"a control character":        `{"detach":{"eid":"a\u001b[2J"}}`,
		"a long name":                `{"configure":{"eid":"10","set":{"name":"` + long + `"}}}`,
		"a newline in a name":        `{"enter":{"pid":12,"config":{"name":"a\nb"}}}`,
		"an unknown setting":         `{"configure":{"eid":"10","clear":["uid"]}}`,
		"no devices":                 `{"configure":{"eid":"10","set":{"gpus":0}}}`,
		"too many devices":           `{"configure":{"eid":"10","set":{"gpus":2147483648}}}`,
		"a negative count":           `{"attach":{"eid":"10","count":-1}}`,
		"a negative index":           `{"attach":{"eid":"10","indices":[-1]}}`,
		"a negative busy device":     `{"enter":{"pid":12,"states":{"-1":"busy"}}}`,
		"a state that there isn't":   `{"attach":{"eid":"10","states":{"1":"gone"}}}`,
		"too many indices":           `{"detach":{"eid":"10","indices":[0` + strings.Repeat(",0", 1024) + `]}}`,
		"memory without a number":    `{"configure":{"eid":"10","set":{"gpu_memory":"much"}}}`,
		"no memory":                  `{"configure":{"eid":"10","set":{"gpu_memory":"0g"}}}`,
		"a long amount of memory":    `{"attach":{"eid":"10","count":1,"gpu_memory":"` + strings.Repeat("0", 64) + `4g"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			c, err := change.Decode([]byte(text))
			require.ErrorIs(t, err, state.ErrRequest)
			require.Zero(t, c)
			require.Less(t, len(err.Error()), 600)
		})
	}
}

func TestErrorsOfEachClass(t *testing.T) {
	classes := []error{state.ErrNoDevices, state.ErrUnavailable, state.ErrRequest, state.ErrNotOwner, state.ErrNoEnvironment, state.ErrActive}
	for i, class := range classes {
		err := fmt.Errorf("%w: and why", class)
		got := change.DecodeError(change.EncodeError(err))
		require.Equal(t, err.Error(), got.Error())
		for j, other := range classes {
			require.Equal(t, i == j, errors.Is(got, other), "%v is %v", class, other)
		}
	}
	plain := change.DecodeError(change.EncodeError(errors.New("the disk is full")))
	require.EqualError(t, plain, "the disk is full")
	late := change.DecodeError(change.EncodeError(fmt.Errorf("wait: %w", context.DeadlineExceeded)))
	require.EqualError(t, late, "wait: no answer in time")
	for _, class := range classes {
		require.NotErrorIs(t, plain, class)
	}
}

func TestTextsOfErrorsAreSafe(t *testing.T) {
	for _, text := range []string{"a\x1b[2Jb\nc\xff", strings.Repeat("é", 1<<20)} {
		got := change.DecodeError(change.EncodeError(errors.New(text))).Error()
		require.NotContains(t, got, "\x1b")
		require.LessOrEqual(t, len(got), 4096)
		require.NotEmpty(t, got)
	}
	require.EqualError(t, change.DecodeError([]byte(`{"text":"\u001b[2J","classes":{"root":true}}`)), `\x1b[2J`)
	for _, garbage := range []string{``, `null`, `[]`, `{}`, `{"text":1}`} {
		require.Error(t, change.DecodeError([]byte(garbage)), garbage)
	}
}

func TestManyConflictsAreCut(t *testing.T) {
	e := &state.UnavailableError{Reason: "no room", TooFew: true}
	for i := range 5000 {
		e.Conflicts = append(e.Conflicts, state.Conflict{Index: snapshot.DeviceIndex(i), EID: "x", Since: at("10:00:00")})
	}
	var got *state.UnavailableError
	require.ErrorAs(t, change.DecodeError(change.EncodeError(fmt.Errorf("attach: %w", e))), &got)
	require.Equal(t, e.Conflicts[:256], got.Conflicts)
	require.True(t, got.TooFew)
}

// FuzzDecode: what is decoded is the same after a round trip, and whatever it does to valid files, they stay valid.
func FuzzDecode(f *testing.F) {
	for _, text := range requests {
		f.Add([]byte(text))
	}
	f.Add([]byte(`{"enter":{"pid":12,"config":{"gpus":2147483647},"attach":true,"states":{}}}`))
	f.Add([]byte(`{"LEAVE":{"pid":11},"leave":{"own":true}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := change.Decode(data)
		if err != nil {
			require.ErrorIs(t, err, state.ErrRequest)
			return
		}
		require.Equal(t, c, proctest.Try(change.Decode(proctest.Try(json.Marshal(c)).OK(t))).OK(t))
		for _, uid := range []snapshot.UID{alice, 0} {
			f := files()
			if _, err := c.Apply(f, asker(uid)); err != nil {
				require.NotEmpty(t, change.DecodeError(change.EncodeError(err)).Error())
			} else {
				reread(t, f)
			}
		}
	})
}

// reread writes the state files and reads them again.
func reread(t *testing.T, f *state.Files) *state.Files {
	t.Helper()
	again := &state.Files{}
	for _, file := range []state.File{state.Envs, state.Devices} {
		data := proctest.Try(f.Encode(file)).OK(t)
		require.NoError(t, again.Decode(file, data), "%s", data)
	}
	return again
}

// TestConfigureResizes: a capacity changes what is attached, too, where the device has that room.
func TestConfigureResizes(t *testing.T) {
	gib := snapshot.MustMemory
	shared := func(f *state.Files) {
		f.Devices[0].Attachments = []snapshot.Attachment{{EID: "10", GPUMemory: gib("4g")}, {EID: "20", GPUMemory: gib("70g"), Time: at("10:00:00")}}
	}
	for name, row := range map[string]struct {
		setup func(*state.Files)
		set   string // empty to clear it
		alone bool   // the configuration
		want  string // of device 0; empty for all of it
		err   string
	}{
		"alone on it":            {set: "12g", want: "12g"},
		"there is room":          {setup: shared, set: "10g", want: "10g"},
		"less is always there":   {setup: shared, set: "1g", want: "1g"},
		"bob has the room":       {setup: shared, set: "12g", want: "4g", err: "GPU 0 has too little free memory: nothing was changed"},
		"all of it":              {setup: func(f *state.Files) { f.Devices[0].Attachments[0].GPUMemory = gib("4g") }},
		"all of it, but bob has": {setup: shared, want: "4g", err: "GPU 0 has too little free memory"},
		"the configuration":      {setup: shared, set: "12g", alone: true, want: "4g"},
		"unified memory":         {setup: func(f *state.Files) { f.Devices[0].Unified = true }, set: "12g", err: "without --gpu-memory"},
	} {
		t.Run(name, func(t *testing.T) {
			f := files()
			if row.setup != nil {
				row.setup(f)
			}
			c := &change.Configure{EID: "10", Resize: !row.alone}
			if row.set == "" {
				c.Clear = []string{change.GPUMemory}
			} else {
				c.Set.GPUMemory = gib(row.set)
			}
			_, err := change.Change{Configure: c}.Apply(f, asker(alice))
			if row.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, row.err)
				require.ErrorIs(t, err, state.ErrUnavailable)
			}
			if row.set == "12g" && row.setup != nil && row.err != "" && row.want != "" {
				var full *state.UnavailableError
				require.ErrorAs(t, err, &full)
				require.Equal(t, "GPU 0: environment 20 of bob(1002) has 70g since 2026-11-20T10:00:00", full.Conflicts[0].String())
			}
			require.Equal(t, row.want, f.Devices[0].Attachment("10").GPUMemory.String())
		})
	}
}
