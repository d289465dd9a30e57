package disk_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// census counts how often it is asked about a process.
type census struct {
	fakeSystem
	asked map[snapshot.PID]int
}

func (c *census) Process(pid snapshot.PID) system.ProcessStatus {
	c.asked[pid]++
	return c.fakeSystem.Process(pid)
}

func TestTheSamePIDManyTimesIsLookedUpOnce(t *testing.T) {
	dir := recordedFolder(t)
	put(t, dir, "envs.json", fmt.Sprintf(`{"envs": [%s]}`, strings.Replace(one, `[1]`, `[1`+strings.Repeat(`,1`, 60_000)+`]`, 1)))
	machine := &census{asked: map[snapshot.PID]int{}}
	require.Len(t, read(t, disk.New(dir, disk.Config{System: machine})).Environments, 1)
	require.LessOrEqual(t, machine.asked[1], 2, "under the lock, and after it")
}

func TestAHangingDirectoryServiceDelaysBriefly(t *testing.T) {
	dir := recordedFolder(t)
	envs := make([]string, 1000)
	for i := range envs {
		text := strings.Replace(one, `"eid":"1","uid":1`, fmt.Sprintf(`"eid":"%d","uid":%d`, i, 100_000+i), 1)
		envs[i] = strings.Replace(text, `"username":null`, `"username":"x"`, 1)
	}
	put(t, dir, "envs.json", `{"envs": [`+strings.Join(envs, ",")+`]}`)
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		name := func(ctx context.Context, _ snapshot.UID) snapshot.Username {
			asked++
			<-ctx.Done()
			return ""
		}
		files := read(t, disk.New(dir, disk.Config{System: &fakeSystem{}, Username: name}))
		require.Len(t, files.Environments, 1000)
		require.Equal(t, 1, asked)
		require.Equal(t, []string{"999 users of environments could not be named within 5s, or have no process here"}, files.Warnings)
	})
}

// What is read well may not fit when it is written as 1.4.3 writes it. Then the host is judged by what was read.
func TestStateThatCannotBeWrittenIsStillRead(t *testing.T) {
	dir := recordedFolder(t)
	const count = 5_400
	name := strings.Repeat("é", 128) // two bytes each, but six in the ASCII of 1.4.3
	envs := make([]string, count)
	for i := range envs {
		text := strings.Replace(one, `"eid":"1"`, fmt.Sprintf(`"eid":"%d"`, i), 1)
		envs[i] = strings.ReplaceAll(text, `name":null`, `name":"`+name+`"`)
	}
	put(t, dir, "envs.json", `{"envs": [`+strings.Join(envs, ",")+`]}`)
	store := everyoneLives(dir)
	files := read(t, store)
	require.Len(t, files.Environments, count)
	require.Equal(t, name, files.Environments[0].Config.Name)
	require.Len(t, files.Warnings, 1)
	require.Contains(t, files.Warnings[0], "larger than 8 MiB")
	require.ErrorIs(t, store.Update(t.Context(), enter(count)), state.ErrRequest)
}

// Many made-up uids cost no more than a moment: no directory service is asked for each of them.
func TestManyMadeUpUsersAreNotNamed(t *testing.T) {
	dir, asked := recordedFolder(t), 0
	store := disk.New(dir, disk.Config{Username: func(_ context.Context, uid snapshot.UID) snapshot.Username {
		asked++
		if uid == snapshot.UID(os.Getuid()) {
			return "me"
		}
		return ""
	}})
	var envs []snapshot.Environment
	for i := range 2_000 {
		envs = append(envs, snapshot.Environment{EID: snapshot.EnvID(fmt.Sprint(i)), UID: snapshot.UID(100_000 + i), Creation: at("12:00:00"), PIDs: []snapshot.PID{1}})
	}
	envs = append(envs, snapshot.Environment{EID: "mine", UID: snapshot.UID(os.Getuid()), Creation: at("12:00:00"), PIDs: []snapshot.PID{snapshot.PID(os.Getpid())}})
	data := proctest.Try(snapshot.EncodeEnvironments(envs)).OK(t)
	var compact bytes.Buffer
	require.NoError(t, json.Compact(&compact, data))
	put(t, dir, "envs.json", compact.String())
	begun := time.Now()
	files, err := store.ReadRaw(t.Context())
	t.Logf("%v", time.Since(begun))
	require.NoError(t, err)
	require.Equal(t, snapshot.Username("me"), files.Environment("mine").Username)
	require.LessOrEqual(t, asked, 65)
}

// One user who registers many environments, and nests processes that hide theirs,
// must not keep the lock from the others for long.
func TestManyEnvironmentsAndNestedProcessesTakeLittleTime(t *testing.T) {
	const count = 1000
	machine := &fakeSystem{processes: dead(1)}
	envs := make([]string, count)
	for i := range envs {
		envs[i] = strings.Replace(one, `"eid":"1","uid":1`, fmt.Sprintf(`"eid":"%d","uid":%d`, i, alice), 1)
		pid := snapshot.PID(100 + i)
		machine.running = append(machine.running, system.RunningProcess{PID: pid, Parent: pid - 1, Start: snapshot.StartTime(pid), UID: alice, Unread: proc.ErrOverwritten})
	}
	dir := recordedFolder(t)
	put(t, dir, "envs.json", `{"envs": [`+strings.Join(envs, ",")+`]}`)
	began := time.Now()
	require.Empty(t, read(t, disk.New(dir, disk.Config{System: machine})).Environments)
	t.Logf("%v", time.Since(began))
}

// What is valid here must not be too much for a controller.
func TestStateFilesThatHoldTooMuchAreCorrupt(t *testing.T) {
	environments := func(n int, name, kernel string) string {
		envs := make([]string, n)
		for i := range envs {
			text := strings.Replace(one, `"eid":"1"`, fmt.Sprintf(`"eid":"%d"`, i), 1)
			envs[i] = strings.NewReplacer(`"name":null`, `"name":"`+name+`"`, `"kernel_ids":[]`, `"kernel_ids":["`+kernel+`"]`).Replace(text)
		}
		return `{"envs":[` + strings.Join(envs, ",") + `]}`
	}
	devices := func(n, attachments int) string {
		of := make([]string, attachments)
		for i := range of {
			of[i] = fmt.Sprintf(`{"eid":"%d","gpu_memory":null,"time":"20/11/2026 21:10:33"}`, i)
		}
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf(`{"index":%d,"total_memory":"80g","attachments":[%s]}`, i, strings.Join(of, ","))
		}
		return `{"devices":[` + strings.Join(list, ",") + `]}`
	}
	for _, tt := range []struct {
		name, file, content string
		corrupt             bool
	}{
		{"many environments", "envs.json", environments(10_000, "x", "k"), false},
		{"names that take more room as JSON", "envs.json", environments(2_000, strings.Repeat("<", 256), "k"), false},
		{"more than are sent", "envs.json", environments(10_001, "x", "k"), false}, // a snapshot is bounded for each account
		{"a long name", "envs.json", environments(1, strings.Repeat("x", 257), "k"), false},
		{"a long kernel id", "envs.json", environments(1, "x", strings.Repeat("x", 257)), false},
		{"a long id", "envs.json", `{"envs":[` + strings.Replace(one, `"eid":"1"`, `"eid":"`+strings.Repeat("x", 257)+`"`, 1) + `]}`, false},
		{"names full of commas", "envs.json", environments(2_000, strings.Repeat(",", 256), "k"), true},
		{"many attachments", "devices.json", devices(8, 1_250), false},
		{"too many attachments", "devices.json", devices(8, 1_251), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := recordedFolder(t)
			put(t, dir, tt.file, tt.content)
			_, err := everyoneLives(dir).ReadRaw(t.Context())
			require.Equal(t, tt.corrupt, errors.Is(err, disk.ErrCorrupt), "%v", err)
		})
	}
}
