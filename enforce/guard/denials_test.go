package guard_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func TestRepeatedOnesAreCounted(t *testing.T) {
	l := guard.NewDenials()
	index := snapshot.DeviceIndex(0)
	first, isNew := l.Add(guard.Denial{UID: 1001, PID: 7, Minor: 3, Denied: true, Index: &index}, noon)
	require.True(t, isNew)
	require.Equal(t, guard.Denial{First: noon, Last: noon, Count: 1, Denied: true, UID: 1001, PID: 7, Minor: 3, Index: &index}, first)
	again, isNew := l.Add(guard.Denial{UID: 1001, PID: 8, Name: "python", Minor: 3, Denied: true}, noon.Add(59*time.Second))
	require.False(t, isNew)
	require.Equal(t, guard.Denial{First: noon, Last: noon.Add(59 * time.Second), Count: 2, Denied: true, UID: 1001, PID: 8, Name: "python", Minor: 3}, again)

	for name, tt := range map[string]struct {
		open guard.Denial
		at   time.Duration
	}{
		"another user":        {guard.Denial{UID: 1002, Minor: 3, Denied: true}, 0},
		"another device":      {guard.Denial{UID: 1001, Minor: 4, Denied: true}, 0},
		"only watched":        {guard.Denial{UID: 1001, Minor: 3}, 0},
		"a minute later":      {guard.Denial{UID: 1001, Minor: 3, Denied: true}, time.Minute},
		"the clock went back": {guard.Denial{UID: 1001, Minor: 3, Denied: true}, -time.Hour},
	} {
		_, isNew := l.Add(tt.open, noon.Add(tt.at))
		require.True(t, isNew, name)
	}
}

func TestRecent(t *testing.T) {
	l := guard.NewDenials()
	require.Zero(t, l.Recent(noon))
	l.Add(guard.Denial{UID: 1, Denied: true}, noon.Add(-2*time.Hour))
	l.Add(guard.Denial{UID: 1, Denied: true}, noon)
	l.Add(guard.Denial{UID: 1, Denied: true}, noon)
	l.Add(guard.Denial{UID: 2}, noon.Add(-59*time.Minute))
	require.EqualValues(t, 3, l.Recent(noon))
}

func TestOneUserCannotHideOthers(t *testing.T) {
	l := guard.NewDenials()
	l.Add(guard.Denial{UID: 7, Denied: true}, noon)
	for i := range 2 * guard.MaxDenials {
		l.Add(guard.Denial{UID: 1001, Minor: i % 250, Denied: true}, noon.Add(time.Duration(i)*time.Minute))
	}
	require.Equal(t, snapshot.UID(7), l.Denials[0].UID)
	require.Len(t, l.Denials, guard.MaxDenialsOfUser+1)
	for uid := range snapshot.UID(100) {
		for minor := range 100 {
			l.Add(guard.Denial{UID: 2000 + uid, Minor: minor, Denied: true}, noon.Add(24*time.Hour))
		}
	}
	require.Len(t, l.Denials, guard.MaxDenials)
	require.Equal(t, snapshot.UID(7), l.Denials[0].UID, "whoever has most loses some")
	require.NotZero(t, l.Dropped)
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	require.Empty(t, proctest.Try(guard.ReadDenials(filepath.Join(dir, "nothing"))).OK(t).Denials)

	l := guard.NewDenials()
	l.Add(guard.Denial{UID: 1, Denied: true}, noon)
	l.Add(guard.Denial{UID: 2}, noon)
	require.NoError(t, guard.WriteDenials(dir, l))
	require.Equal(t, l, proctest.Try(guard.ReadDenials(dir)).OK(t))
	info := proctest.Try(os.Stat(filepath.Join(dir, "guard-denials.json"))).OK(t)
	require.Equal(t, os.FileMode(0o600), info.Mode())

	require.NoError(t, os.Chmod(filepath.Join(dir, "guard-denials.json"), 0o622))
	require.ErrorIs(t, proctest.Try(guard.ReadDenials(dir)).Err, folder.ErrUnsafe)
}

func TestReadRefusesWhatItDidNotWrite(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "another schema": `{"schema":"x","epoch":"e"}`,
		"escape in name": `{"schema":"genv.guard-denials/1","denials":[{"name":"\u001b"}]}`,
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "guard-denials.json"), []byte(text), 0o600))
		require.ErrorIs(t, proctest.Try(guard.ReadDenials(dir)).Err, snapshot.ErrInvalid, name)
	}
}

func TestModesAreWrittenAsTheyAreRead(t *testing.T) {
	for _, m := range []guard.Mode{guard.Off, guard.Watch, guard.Enforce} {
		b := proctest.Try(json.Marshal(m)).OK(t)
		var read guard.Mode
		require.NoError(t, json.Unmarshal(b, &read))
		require.Equal(t, m, read)
		require.Equal(t, m, proctest.Try(guard.ParseMode(m.String())).OK(t))
	}
	require.Equal(t, []string{"off", "watch", "enforce"}, guard.Modes())
}

func TestOtherModesAreRefused(t *testing.T) {
	for _, name := range []string{"", "on", "OFF", "Watch", "enforce ", "2"} {
		require.ErrorContains(t, proctest.Try(guard.ParseMode(name)).Err, "expected off, watch or enforce", name)
	}
	for _, m := range []guard.Mode{-1, 3} {
		require.False(t, m.Valid())
		require.Error(t, proctest.Try(json.Marshal(m)).Err)
		require.NotEmpty(t, m.String())
	}
}

// TestAwait: who attaches a GPU goes on when the kernel's table has it, and at once where no guard keeps it.
func TestAwait(t *testing.T) {
	on := func(s guard.Status) guard.Status {
		s.Mode, s.Until, s.FirstUID = guard.Enforce, time.Now().Add(time.Minute), 1000
		s.Devices = []guard.Device{{Index: 0, Guarded: true}, {Index: 1, Guarded: true}, {Index: 2}}
		return s
	}
	has := func(uid snapshot.UID, devices ...snapshot.DeviceIndex) guard.Status {
		return on(guard.Status{Users: []guard.AllowedUser{{UID: uid, Devices: devices}}})
	}
	ended := has(1002)
	ended.Until = time.Now()
	for name, row := range map[string]struct {
		status  guard.Status
		uid     snapshot.UID
		devices []snapshot.DeviceIndex
		waits   bool
	}{
		"not in the table":     {status: has(1002, 0), devices: []snapshot.DeviceIndex{0}, waits: true},
		"one is missing":       {status: has(1001, 0), devices: []snapshot.DeviceIndex{0, 1}, waits: true},
		"all are there":        {status: has(1001, 0, 1), devices: []snapshot.DeviceIndex{0, 1}},
		"one isn't guarded":    {status: has(1001, 0), devices: []snapshot.DeviceIndex{0, 2}},
		"nothing is attached":  {status: has(1002)},
		"an exempt user":       {status: on(guard.Status{Users: []guard.AllowedUser{{UID: 1001, Exempt: true}}}), devices: []snapshot.DeviceIndex{0}},
		"root":                 {status: has(1001), uid: 4294967294, devices: []snapshot.DeviceIndex{0}},
		"a system account":     {status: has(1001), uid: 999, devices: []snapshot.DeviceIndex{0}},
		"more than are listed": {status: on(guard.Status{UsersLeftOut: 1}), devices: []snapshot.DeviceIndex{0}},
		"the guard is off":     {status: guard.Status{Mode: guard.Off}, devices: []snapshot.DeviceIndex{0}},
		"its time is over":     {status: ended, devices: []snapshot.DeviceIndex{0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, uid := t.TempDir(), row.uid
			switch uid {
			case 0:
				uid = 1001
			case 4294967294:
				uid = 0
			}
			require.NoError(t, guard.WriteStatus(dir, row.status))
			limit := time.Minute // on a loaded machine
			if row.waits {
				limit = 50 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			guard.Await(ctx, dir, uid, row.devices)
			require.Equal(t, row.waits, ctx.Err() != nil)
			if row.waits {
				done := make(chan struct{})
				go func() {
					defer close(done)
					guard.Await(t.Context(), dir, uid, row.devices)
				}()
				require.NoError(t, guard.WriteStatus(dir, has(uid, row.devices...)))
				<-done
			}
		})
	}
	guard.Await(t.Context(), t.TempDir(), 1001, []snapshot.DeviceIndex{0}) // there never was a guard
}
