package guard_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/snapshot"
)

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
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
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
