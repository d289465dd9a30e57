package enforcement

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
)

// guardedDay is a fleet of hosts with guards.
type guardedDay struct {
	*day
	modes []guard.Mode // of the requests
}

func (*guardedDay) About(remote.Host) agent.About {
	return agent.About{Via: agent.ViaStream, Can: agent.Capabilities{Guard: true}}
}

func (d *guardedDay) Guard(_ context.Context, _ remote.Host, r agent.GuardRequest) (agent.GuardAnswer, error) {
	d.modes = append(d.modes, r.Order.Mode)
	return agent.GuardAnswer{State: agent.GuardState{Mode: r.Order.Mode}}, nil
}

// TestGuardWithSummary: a summary measures what hosts are asked, and hides no guard.
func TestGuardWithSummary(t *testing.T) {
	for _, period := range []time.Duration{0, time.Hour} {
		t.Run(period.String(), func(t *testing.T) {
			var screen bytes.Buffer
			p := &command.Program{Out: &screen, Err: &screen, Getenv: func(string) string { return "" }, Now: time.Now}
			file, err := policy.Parse("policy.yaml", []byte("defaults: {guard: enforce}"))
			require.NoError(t, err)
			d := &guardedDay{day: openDay(t)}
			options := Options{
				Policy: file, Format: "tui", ActUnrecorded: true, Summary: period,
				Hosts: []remote.Host{{Name: dayName(1)}}, Link: d, Fanout: 1, CycleLimit: time.Minute, Progress: &render.Progress{},
			}
			require.NoError(t, Run(t.Context(), p, zerolog.Nop(), options, nil))
			require.Equal(t, []guard.Mode{guard.Enforce}, d.modes)
			require.Contains(t, screen.String(), "the kernel guard is enforcing")
		})
	}
}
