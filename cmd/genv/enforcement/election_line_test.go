package enforcement

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
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

// A controller that ends in order says so, and whether another one can lead now.
func TestResignation(t *testing.T) {
	for name, row := range map[string]struct {
		before func(s *store)
		want   string
	}{
		"it leads":            {func(*store) {}, "resigned after leading for 1m: another controller can lead now"},
		"another one leads":   {func(s *store) { s.elect("bob") }, "ended as a standby"},
		"etcd doesn't answer": {func(s *store) { s.fail(context.DeadlineExceeded) }, "ended while it wasn't known whether this controller still leads"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &store{entries: map[string]etcd.Entry{}}
			var log bytes.Buffer
			l := &loop{program: &command.Program{Now: time.Now}, log: zerolog.New(&log), part: electedPart(t, s), current: &controller.Controller{}}
			time.Sleep(50 * time.Second)
			row.before(s)
			time.Sleep(10 * time.Second)
			l.resign()
			require.Contains(t, log.String(), row.want, name)
		})
	}
}
