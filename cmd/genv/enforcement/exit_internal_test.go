package enforcement

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
)

// A loop that is ended in the middle of a cycle has the exit code of what the hosts did, not of
// what it cancelled itself.
func TestExitOfACycle(t *testing.T) {
	cancelled := remote.Errorf(remote.Cancelled, "not begun: %w", context.Canceled)
	silent := remote.Errorf(remote.Timeout, "no answer")
	for _, test := range []struct {
		name   string
		hosts  []error
		action error
		ends   bool
		want   int
	}{
		{"all answered", []error{nil, nil}, nil, false, command.ExitOK},
		{"one failed", []error{nil, silent}, nil, false, command.ExitSomeFailed},
		{"one failed, and the loop ends", []error{nil, silent}, nil, true, command.ExitSomeFailed},
		{"no host answered, and the loop ends", []error{silent, silent}, nil, true, command.ExitNoneLeft},
		{"one was cancelled", []error{nil, cancelled}, nil, false, command.ExitSomeFailed},
		{"one was cancelled by the end", []error{nil, cancelled}, nil, true, command.ExitOK},
		{"a report was cancelled", []error{nil}, cancelled, false, command.ExitSomeFailed},
		{"a report was cancelled by the end", []error{nil}, cancelled, true, command.ExitOK},
		{"a report failed, and the loop ends", []error{nil}, silent, true, command.ExitSomeFailed},
	} {
		cycle := new(controller.Cycle)
		for i, err := range test.hosts {
			host := snapshot.Host{Name: snapshot.Hostname(rune('a' + i)), Err: err}
			if err == nil {
				host.Snapshot = new(snapshot.Snapshot)
			}
			cycle.Cluster.Hosts = append(cycle.Cluster.Hosts, host)
		}
		if test.action != nil {
			cycle.Actions = []controller.ReportResult{{Host: "a", Err: test.action}}
		}
		code := command.ExitOK
		var exit *command.ExitError
		if err := new(loop).exit(cycle, test.ends); err != nil {
			require.ErrorAs(t, err, &exit)
			code = exit.Code
		}
		require.Equal(t, test.want, code, test.name)
	}
}
