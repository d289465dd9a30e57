package enforcement_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// countTerm is a program that notes each SIGTERM in a file, and ends two seconds after the first one.
const countTerm = `trap 'echo term >>"$0"; over=yes' TERM; echo; i=0; while [ $i -lt 20 ]; do sleep 0.1; [ -z "$over" ] || i=$((i+1)); done`

// counted is a process that violates a rule, and the file in which it notes its SIGTERMs.
type counted struct {
	*testfleet.Process
	file string
}

func (e *electors) violateCounted(host, dir string, number int) counted {
	e.t.Helper()
	file := filepath.Join(dir, fmt.Sprint(number))
	require.NoError(e.t, os.WriteFile(file, nil, 0o600))
	require.NoError(e.t, os.Chmod(file, 0o666)) //nolint:gosec // a user of the fleet writes it
	job := genvtest.StartJob(e.t, e.fleet.Host(host), testfleet.Job{
		User: "alice", Uses: []testfleet.Use{{Device: 0, MiB: 100}}, Command: []string{"/bin/sh", "-c", countTerm, file}, Speaks: true,
	})
	return counted{job, file}
}

// candidate is a controller of which all cycles are read at once: one with an output that isn't read waits for it.
type candidate struct {
	*elector
	mu   sync.Mutex
	last enforcement.CycleDocument
}

func (e *electors) startCandidate(name string, more ...string) *candidate {
	c := &candidate{elector: e.start(name, more...)}
	go func() {
		for {
			select {
			case document := <-c.cycles:
				c.mu.Lock()
				c.last = document
				c.mu.Unlock()
			case <-c.ended:
				return
			}
		}
	}()
	return c
}

// becomes waits for a cycle in a role, and returns how long that took.
func (c *candidate) becomes(role election.Role) time.Duration {
	c.t.Helper()
	begun := time.Now()
	require.Eventually(c.t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.last.Election != nil && c.last.Election.Role == role && c.last.Standby == (role != election.Leading)
	}, time.Minute, 5*time.Millisecond, "it isn't %s", role)
	return time.Since(begun)
}

// fail ends a leader while a process begins to violate a rule, and returns after how long that process is signalled.
func (c *candidate) fail(how os.Signal, next *candidate, violate func() counted) time.Duration {
	begun := time.Now()
	c.signal(how)
	process := violate()
	next.becomes(election.Leading)
	var signalled os.FileInfo
	require.Eventually(c.t, func() (yes bool) {
		var err error
		signalled, err = os.Stat(process.file)
		return err == nil && signalled.Size() > 0
	}, time.Minute, 10*time.Millisecond, "no controller acts")
	if how == syscall.SIGSTOP { // it must not act when it goes on
		c.signal(syscall.SIGCONT)
		c.becomes(election.Standby)
		c.signal(syscall.SIGKILL)
	}
	return signalled.ModTime().Sub(begun)
}

// Leaders fail again and again, in three ways, while processes violate a rule: each of these is
// signalled once, and none is missed. 100 fail-overs take about 15 minutes.
func TestSoakFailOvers(t *testing.T) {
	limit := proctest.Soak(t)
	e := newElectors(t, "gpu-01", "gpu-02")
	dir := proctest.PublicDir(t, 0o711) // users of the fleet write files in it
	const rule = "--non-env-processes"
	leader, standby := e.startCandidate("first", rule), e.startCandidate("second", rule)
	leader.becomes(election.Leading)
	took := map[string][]time.Duration{}
	var all []counted
	for n, begun := 0, time.Now(); n < 3 || time.Since(begun) < limit; n++ {
		how := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGSTOP}[n%3]
		all = append(all, e.violateCounted("gpu-01", dir, 2*n)) // around the failure
		time.Sleep(time.Duration(n*37%1500) * time.Millisecond)
		last := leader.fail(how, standby, func() counted {
			all = append(all, e.violateCounted("gpu-02", dir, 2*n+1))
			return all[len(all)-1]
		})
		t.Logf("%d: %s: %s", n, how, last.Round(time.Millisecond))
		took[how.String()] = append(took[how.String()], last)
		leader, standby = standby, e.startCandidate(fmt.Sprint("after-", n), rule)
		for _, c := range all[2*n:] {
			e.ended(c.Process)
		}
	}
	for _, c := range all {
		require.Equal(t, 1, strings.Count(genvtest.Read(t, c.file), "term"), "process %d", c.PID)
	}
	for kind, list := range took {
		slices.Sort(list)
		t.Logf("%-12s %d fail-overs: p50 %s, p90 %s, max %s", kind, len(list), list[len(list)/2].Round(time.Millisecond), list[len(list)*9/10].Round(time.Millisecond), list[len(list)-1].Round(time.Millisecond))
	}
}
