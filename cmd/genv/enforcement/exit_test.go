package enforcement

import (
	"bytes"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
)

// The exit code counts hosts, not failures, and is not improved by the end of a run.
func TestExitCodes(t *testing.T) {
	answered := snapshot.Host{Name: "a", Snapshot: &snapshot.Snapshot{}}
	down := snapshot.Host{Name: "b", Err: remote.Errorf(remote.Unreachable, "no route")}
	cut := controller.ReportResult{Host: "b", Err: remote.Errorf(remote.OutcomeUnknown, "cut")}
	cutThere := controller.ReportResult{Host: "a", Err: remote.Errorf(remote.OutcomeUnknown, "cut")}
	fleet := func(hosts ...snapshot.Host) snapshot.Cluster { return snapshot.Cluster{Hosts: hosts} }
	for name, tt := range map[string]struct {
		cycles []controller.Cycle
		quiet  bool
		want   int
		says   string
	}{
		"all is well":                           {[]controller.Cycle{{Cluster: fleet(answered)}}, false, 0, ""},
		"one is down":                           {[]controller.Cycle{{Cluster: fleet(answered, down)}}, false, command.ExitSomeFailed, ""},
		"one is down, and its report was cut":   {[]controller.Cycle{{Cluster: fleet(answered, down), Stopped: true, Actions: []controller.ReportResult{cut}}}, false, command.ExitSomeFailed, "1 of 2 hosts failed"},
		"the only one answered, and was cut":    {[]controller.Cycle{{Cluster: fleet(answered), Actions: []controller.ReportResult{cutThere}}}, false, command.ExitSomeFailed, ""},
		"none answered":                         {[]controller.Cycle{{Cluster: fleet(down)}}, true, command.ExitNoneLeft, ""},
		"quiet":                                 {[]controller.Cycle{{Cluster: fleet(answered, down)}}, true, command.ExitSomeFailed, ""},
		"a failure before, and then the end":    {[]controller.Cycle{{Cluster: fleet(answered, down)}, {Stopped: true, Cluster: fleet(answered), Actions: []controller.ReportResult{{Host: "a"}}}}, false, command.ExitSomeFailed, ""},
		"well before, and a failure at the end": {[]controller.Cycle{{Cluster: fleet(answered)}, {Stopped: true, Cluster: fleet(answered), Actions: []controller.ReportResult{cutThere}}}, false, command.ExitSomeFailed, "1 of 1 host failed"},
		"a failure, and then all is well":       {[]controller.Cycle{{Cluster: fleet(answered, down)}, {Cluster: fleet(answered, answered)}}, false, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			progress := &render.Progress{}
			l := &loop{log: zerolog.Nop(), service: &service{}, screen: cycleWriter{out: &out, err: &out, bar: progress}}
			l.setup.Progress, l.setup.Quiet = progress, tt.quiet
			for i := range tt.cycles {
				err := l.show(t.Context(), &tt.cycles[i])
				if tt.cycles[i].Stopped {
					require.ErrorIs(t, err, errStopped, "with and without -q")
				}
			}
			require.Equal(t, tt.want, command.ExitCode(l.last))
			require.Contains(t, out.String(), tt.says)
		})
	}
}
