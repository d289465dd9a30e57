package local_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// TestDetachWhatWasUnused: the answer of the driver that was judged may be a minute old.
func TestDetachWhatWasUnused(t *testing.T) {
	raz := environment("7", 1001, "raz")
	user := func(uid snapshot.UID, p snapshot.Process) snapshot.Process {
		p.PID, p.UID, p.Usage = 4711, &uid, []snapshot.DeviceUsage{{Index: 1}}
		return p
	}
	elsewhere := user(1001, snapshot.Process{EID: "7"})
	elsewhere.Usage[0].Index = 0
	for name, tt := range map[string]struct {
		used   bool // it was judged to be in use
		apps   []snapshot.Process
		err    error
		status order.OutcomeStatus
	}{
		"still unused":                     {status: order.StatusDetached},
		"used by now":                      {apps: []snapshot.Process{user(1001, snapshot.Process{EID: "7"})}, status: order.StatusChanged},
		"by root's process in it":          {apps: []snapshot.Process{user(0, snapshot.Process{EID: "7"})}, status: order.StatusChanged},
		"by one in an unknown environment": {apps: []snapshot.Process{user(1001, snapshot.Process{EnvUnknown: true})}, status: order.StatusChanged},
		"by one without a device open":     {apps: []snapshot.Process{user(1001, snapshot.Process{EID: "7", NodeMissing: true})}, status: order.StatusDetached},
		"by a stranger's process in it":    {apps: []snapshot.Process{user(1002, snapshot.Process{EID: "7"})}, status: order.StatusDetached},
		"by an unknown one of a stranger":  {apps: []snapshot.Process{user(1002, snapshot.Process{EnvUnknown: true})}, status: order.StatusDetached},
		"by another environment":           {apps: []snapshot.Process{user(1001, snapshot.Process{EID: "8"})}, status: order.StatusDetached},
		"another GPU is used":              {apps: []snapshot.Process{elsewhere}, status: order.StatusDetached},
		"the driver is ill":                {err: errDriver, status: order.StatusFailed},
		"judged although it was used":      {used: true, err: errDriver, status: order.StatusDetached},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(local.ExecutorOptions{}, tt.apps...)
			s.machine.err = tt.err
			s.stateFiles.content = state.Files{Environments: []snapshot.Environment{raz}, Devices: []snapshot.Device{device(1, "7")}}
			o := order.Order{Detach: []order.Detachment{{Device: 1, Environment: raz, Unused: !tt.used}}}
			require.Equal(t, tt.status, s.x.Execute(t.Context(), o)[0].Status)
		})
	}
}
