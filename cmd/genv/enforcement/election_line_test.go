package enforcement

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/election"
)

// A standby claims no host, so that it has --take-over may not look as if it took hosts over.
func TestElectionLine(t *testing.T) {
	for name, row := range map[string]struct {
		status   election.Status
		takeOver bool
		line     string
	}{
		"a standby":            {election.Status{Role: election.Standby, Answered: time.Now()}, false, "standby; no controller leads"},
		"etcd wasn't asked":    {election.Status{Role: election.Standby}, true, ""},
		"it is to take over":   {election.Status{Role: election.Standby, Leader: &election.Leader{Candidate: election.Candidate{Name: "bob"}}}, true, `standby; "bob" leads; --take-over has no effect until this controller leads`},
		"etcd is away as well": {election.Status{Role: election.Standby, Err: context.DeadlineExceeded}, true, "standby; etcd doesn't answer, so it isn't known which controller leads; --take-over has no effect until this controller leads"},
		"it leads":             {election.Status{Role: election.Leading, Epoch: 7}, true, "this controller leads since 0001-01-01T00:00:00Z (epoch 7)"},
	} {
		require.Equal(t, row.line, electionLine(&row.status, row.takeOver), name)
	}
}
