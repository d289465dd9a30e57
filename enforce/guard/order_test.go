package guard_test

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

var start = guard.At{Time: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), BootID: "b1", SinceBoot: time.Hour}

func after(d time.Duration) guard.At {
	return guard.At{Time: start.Time.Add(d), BootID: start.BootID, SinceBoot: start.SinceBoot + d}
}

func enforce() guard.Order {
	return guard.Order{
		Mode: guard.Enforce, LeaseMS: 60_000, FirstUID: 2000, ExemptUsers: []snapshot.Username{"ann"}, ExemptUIDs: []snapshot.UID{7},
		ExemptDevices: []snapshot.DeviceIndex{3}, ExemptUUIDs: []snapshot.GPUUUID{"GPU-a"}, By: "alice",
	}
}

func TestCheck(t *testing.T) {
	for name, change := range map[string]func(*guard.Order){
		"as it is":          func(*guard.Order) {},
		"off":               func(o *guard.Order) { o.Mode = guard.Off },
		"off without lease": func(o *guard.Order) { *o = guard.Order{By: "alice"} },
		"watch":             func(o *guard.Order) { o.Mode = guard.Watch },
		"a short lease":     func(o *guard.Order) { o.LeaseMS = 1000 },
		"a day":             func(o *guard.Order) { o.LeaseMS = 86_400_000 },
		"uid 1":             func(o *guard.Order) { o.FirstUID = 1 },
		"the last device":   func(o *guard.Order) { o.ExemptDevices = []snapshot.DeviceIndex{1023} },
		"no author":         func(o *guard.Order) { o.By = "" },
	} {
		o := enforce()
		change(&o)
		require.NoError(t, o.Check(), name)
		data := proctest.Try(json.Marshal(o)).OK(t, name)
		var again guard.Order
		require.NoError(t, json.Unmarshal(data, &again), name)
		require.Equal(t, o, again, name)
	}
	for name, change := range map[string]func(*guard.Order){
		"an unknown mode":     func(o *guard.Order) { o.Mode = 7 },
		"no lease":            func(o *guard.Order) { o.LeaseMS = 0 },
		"a negative lease":    func(o *guard.Order) { o.LeaseMS = -1000 },
		"less than a second":  func(o *guard.Order) { o.LeaseMS = 999 },
		"more than a day":     func(o *guard.Order) { o.LeaseMS = 90_000_000 },
		"a device below zero": func(o *guard.Order) { o.ExemptDevices = []snapshot.DeviceIndex{-1} },
		"a device too high":   func(o *guard.Order) { o.ExemptDevices = []snapshot.DeviceIndex{1024} },
		"a user without name": func(o *guard.Order) { o.ExemptUsers = []snapshot.Username{""} },
		"a line of passwd":    func(o *guard.Order) { o.ExemptUsers = []snapshot.Username{"a:b"} },
		"a control character": func(o *guard.Order) { o.By = "\x1b[2J" },
		"a long author":       func(o *guard.Order) { o.By = strings.Repeat("a", 257) },
		"too many users":      func(o *guard.Order) { o.ExemptUIDs = make([]snapshot.UID, 1001) },
	} {
		o := enforce()
		change(&o)
		require.ErrorIs(t, o.Check(), snapshot.ErrInvalid, name)
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	for _, text := range []string{
		`{}`, `{"mode":"enforce"}`, `{"mode":"enforce","lease_ms":-1}`, `{"mode":"enforce","lease_ms":9223372036854775807}`,
		`{"mode":"on","lease_ms":60000}`, `{"mode":"watch","lease_ms":60000,"exempt_devices":[5000]}`, `[]`, ``,
	} {
		var o guard.Order
		err := cmp.Or(json.Unmarshal([]byte(text), &o), o.Check())
		if text == `{}` { // off, without an author
			require.NoError(t, err)
			require.Equal(t, guard.Order{}, o)
			continue
		}
		require.Error(t, err, text)
	}
}

func TestExemptsDevice(t *testing.T) {
	o := enforce()
	require.True(t, o.ExemptsDevice(3, ""))
	require.True(t, o.ExemptsDevice(0, "GPU-a"))
	require.False(t, o.ExemptsDevice(0, "GPU-b"))
	require.False(t, o.ExemptsDevice(3, "GPU-b"), "another GPU has the index now")
	require.False(t, o.ExemptsDevice(0, ""))
	require.True(t, (&guard.Order{ExemptDevices: o.ExemptDevices}).ExemptsDevice(3, "GPU-b"), "which UUID was meant is unknown")
	o.ExemptUUIDs = []snapshot.GPUUUID{""}
	require.False(t, o.ExemptsDevice(0, ""), "an unknown UUID is not the same as an unknown one")
	require.Equal(t, snapshot.UID(2000), o.First())
	require.Equal(t, system.FirstUID(), (&guard.Order{}).First())
}

func TestAnOrderEndsWithItsLease(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	require.ErrorIs(t, proctest.Try(guard.ReadOrder(dir)).Err, guard.ErrNoOrder)
	g := proctest.Try(guard.GiveOrder(dir, enforce(), "", start)).OK(t)
	read := proctest.Try(guard.ReadOrder(dir)).OK(t)
	require.Equal(t, g, read)
	require.Equal(t, os.FileMode(0o600), proctest.Try(os.Stat(filepath.Join(dir, guard.OrderFile))).OK(t).Mode())

	for name, tt := range map[string]struct {
		at   guard.At
		want time.Duration
	}{
		"at once":           {start, time.Minute},
		"later":             {after(59 * time.Second), time.Second},
		"at its end":        {after(time.Minute), 0},
		"long after":        {after(time.Hour), 0},
		"another boot":      {guard.At{Time: start.Time, BootID: "b2", SinceBoot: start.SinceBoot}, 0},
		"before it":         {after(-time.Second), 0},
		"the clock was set": {guard.At{Time: start.Time.Add(-24 * time.Hour), BootID: "b1", SinceBoot: start.SinceBoot + time.Second}, 59 * time.Second},
	} {
		require.Equal(t, tt.want, read.Left(tt.at), name)
	}
}

func TestRenew(t *testing.T) {
	dir := t.TempDir()
	require.ErrorIs(t, proctest.Try(guard.RenewOrder(dir, func() guard.Order { o := enforce(); o.ID = "x"; return o }(), start)).Err, guard.ErrNoOrder)
	mine := proctest.Try(guard.GiveOrder(dir, enforce(), "", start)).OK(t)
	mine = proctest.Try(guard.RenewOrder(dir, mine, after(20*time.Second))).OK(t)
	require.Equal(t, 60*time.Second, mine.Left(after(20*time.Second)))
	require.Equal(t, 30*time.Second, mine.Left(after(50*time.Second)))

	other := proctest.Try(guard.GiveOrder(dir, guard.Order{By: "bob"}, "", after(30*time.Second))).OK(t)
	got, err := guard.RenewOrder(dir, mine, after(40*time.Second))
	require.ErrorIs(t, err, guard.ErrReplaced)
	require.Equal(t, other, got)
	read := proctest.Try(guard.ReadOrder(dir)).OK(t)
	require.Equal(t, other, read, "it stays")
	require.NotEqual(t, mine.ID, other.ID)

	require.ErrorIs(t, guard.WithdrawOrder(dir, mine), guard.ErrReplaced)
	require.NoError(t, guard.WithdrawOrder(dir, other))
	require.ErrorIs(t, proctest.Try(guard.ReadOrder(dir)).Err, guard.ErrNoOrder)
	require.NoError(t, guard.WithdrawOrder(dir, other), "it is gone already")

	require.Equal(t, "controller 1", proctest.Try(guard.GiveOrder(dir, enforce(), "controller 1", after(time.Minute))).OK(t).ID)
}

func TestReadTrustsOnlyRoot(t *testing.T) {
	for name, tamper := range map[string]func(dir string) error{
		"everybody may write the folder": func(dir string) error { return os.Chmod(dir, 0o777) },
		"everybody may write the file":   func(dir string) error { return os.Chmod(filepath.Join(dir, guard.OrderFile), 0o666) },
		"a link": func(dir string) error {
			path := filepath.Join(dir, guard.OrderFile)
			other := filepath.Join(t.TempDir(), "other")
			if err := os.Rename(path, other); err != nil {
				return err
			}
			return os.Symlink(other, path)
		},
		"another user's file": func(dir string) error {
			proctest.NeedRoot(t) // only root can give a file away
			return os.Chown(filepath.Join(dir, guard.OrderFile), 12345, 12345)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			proctest.Try(guard.GiveOrder(dir, enforce(), "", start)).OK(t)
			require.NoError(t, tamper(dir))
			require.ErrorIs(t, proctest.Try(guard.ReadOrder(dir)).Err, folder.ErrUnsafe)
		})
	}
}

func FuzzReadOrder(f *testing.F) {
	dir := f.TempDir()
	proctest.Try(guard.GiveOrder(dir, enforce(), "", start)).OK(f)
	seed := proctest.ReadFile(f, filepath.Join(dir, guard.OrderFile))
	f.Add(seed)
	f.Add([]byte(`{"schema":"genv.guard-order/1","id":"x","mode":"off","by":""}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, guard.OrderFile), data, 0o600))
		if g, err := guard.ReadOrder(dir); err == nil {
			require.NoError(t, g.Check())
			require.NotEmpty(t, g.ID)
			require.LessOrEqual(t, g.Left(start), guard.MaxLease)
		}
	})
}

func TestStatus(t *testing.T) {
	dir := t.TempDir()
	require.ErrorIs(t, proctest.Try(guard.ReadStatus(dir)).Err, guard.ErrNoStatus)
	minor, o := 5, enforce()
	s := guard.Status{
		Mode: guard.Enforce, Until: start.Time.Add(time.Minute), Time: start.Time, Order: &o, Given: start.Time,
		Devices: []guard.Device{{Index: 0, UUID: "GPU-a", Minor: &minor, Guarded: true}},
		Users:   []guard.AllowedUser{{UID: 1001, Devices: []snapshot.DeviceIndex{0}}},
	}
	require.NoError(t, os.Chmod(dir, 0o700)) // as a umask of 077 leaves it
	require.NoError(t, guard.WriteStatus(dir, s))
	require.Equal(t, os.FileMode(0o755), proctest.Try(os.Stat(dir)).OK(t).Mode().Perm())
	got := proctest.Try(guard.ReadStatus(dir)).OK(t)
	s.Schema = "genv.guard/1"
	require.Equal(t, s, got)
	info := proctest.Try(os.Stat(filepath.Join(dir, "guard.json"))).OK(t)
	require.Equal(t, os.FileMode(0o644), info.Mode(), "everybody reads it")
	require.Equal(t, guard.Enforce, got.Now(start.Time))
	require.Equal(t, guard.Off, got.Now(start.Time.Add(time.Minute)), "its process has died")

	s.Users = make([]guard.AllowedUser, guard.MaxUsers+3)
	require.NoError(t, guard.WriteStatus(dir, s))
	got = proctest.Try(guard.ReadStatus(dir)).OK(t)
	require.Len(t, got.Users, guard.MaxUsers)
	require.Equal(t, 3, got.UsersLeftOut)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "guard.json"), []byte(`{"schema":"genv.guard/2"}`), 0o600))
	require.ErrorIs(t, proctest.Try(guard.ReadStatus(dir)).Err, snapshot.ErrInvalid)
}
