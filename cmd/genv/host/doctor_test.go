package host_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/doctor"
)

// TestDoctorKnowsTheOrderOfTheGuard: what the guard was ordered is compared with what it does.
func TestDoctorKnowsTheOrderOfTheGuard(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	order := guard.Order{Mode: guard.Enforce, Lease: time.Minute, By: "bob on jump"}
	for name, row := range map[string]struct {
		status *guard.Status
		want   doctor.GuardState
		cause  doctor.Cause
	}{
		"no order": {nil, doctor.GuardState{Mode: snapshot.GuardOff}, ""},
		"on": {
			&guard.Status{Mode: guard.Enforce, Until: now.Add(time.Minute), Order: &order, Given: now},
			doctor.GuardState{Mode: snapshot.GuardEnforce, Ordered: snapshot.GuardEnforce, By: order.By, Renewed: now},
			"",
		},
		"not renewed": {
			&guard.Status{Reason: "the time of its last order has ended", Order: &order, Given: now.Add(-time.Hour)},
			doctor.GuardState{Mode: snapshot.GuardOff, Ordered: snapshot.GuardEnforce, Reason: "the time of its last order has ended", By: order.By, Renewed: now.Add(-time.Hour)},
			"guard-not-renewed",
		},
		"it can't be done": {
			&guard.Status{Reason: "the guard can't be attached", Order: &order, Given: now},
			doctor.GuardState{Mode: snapshot.GuardUnable, Ordered: snapshot.GuardEnforce, Reason: "the guard can't be attached", By: order.By, Renewed: now},
			"guard-unable",
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			t.Setenv("GENV_ROOT_DIR", root)
			t.Setenv("GENV_TMPDIR", filepath.Join(root, "tmp"))
			require.NoError(t, os.Mkdir(filepath.Join(root, "run"), 0o755))
			if row.status != nil {
				require.NoError(t, guard.WriteStatus(filepath.Join(root, "run"), *row.status))
			}
			r := genvtest.Run(t, "doctor", "--format", "json", "--timeout", "1")
			var d doctor.HostDocument
			require.NoError(t, json.Unmarshal([]byte(r.Out), &d), r.Err)
			require.Equal(t, &row.want, d.Guard)
			for _, c := range d.Checks {
				if c.Name == doctor.Guard && row.cause != "" {
					require.Equal(t, row.cause, c.Cause)
					require.Contains(t, c.Detail, "bob on jump ordered enforce")
				}
			}
		})
	}
}
