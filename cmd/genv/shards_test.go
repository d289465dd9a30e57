package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/controllers"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/sharding"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/remote/shards"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/snapshot"
)

// sharing are controllers that share hosts, and who judged which host last.
type sharing struct {
	*electors
	count  int // of shards
	mu     sync.Mutex
	judged map[snapshot.Hostname]map[string]time.Time // by controller
}

// names are those of three controllers, of which each is to have hosts.
func (s *sharing) names() []string {
	s.t.Helper()
	for try := range 1000 {
		names := []string{fmt.Sprint("a", try), fmt.Sprint("b", try), fmt.Sprint("c", try)}
		if s.sharers(names...) == 3 && s.sharers(names[:2]...) == 2 && s.sharers(names[0], names[2]) == 2 {
			return names
		}
	}
	require.FailNow(s.t, "no such names")
	return nil
}

// sharers is how many of the controllers should have hosts.
func (s *sharing) sharers(names ...string) int {
	return len(slices.Compact(slices.Sorted(maps.Values(s.owners(names...)))))
}

// join starts a controller.
func (s *sharing) join(name string, more ...string) *elector {
	s.t.Helper()
	d := s.begin(name, more...)
	s.t.Cleanup(func() { s.t.Logf("%s said: %s", name, d.said()) })
	go func() {
		for {
			select {
			case c := <-d.cycles:
				s.note(name, &c)
			case <-d.ended:
				return
			}
		}
	}()
	return d
}

func (s *sharing) note(name string, c *enforcement.CycleDocument) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for host := range c.Via {
		if !c.Standby {
			if s.judged[host] == nil {
				s.judged[host] = make(map[string]time.Time)
			}
			s.judged[host][name] = time.Now()
		}
	}
}

// judges waits until each host is judged, within the last seconds, by the controller of these
// that should have it, and by no other one.
func (s *sharing) judges(names ...string) {
	s.t.Helper()
	want := s.owners(names...)
	require.Eventually(s.t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		by := make(map[string]string)
		for host, last := range s.judged {
			for name, at := range last {
				if time.Since(at) < 2500*time.Millisecond {
					by[string(host)] += name
				}
			}
		}
		return maps.Equal(want, by)
	}, time.Minute, 50*time.Millisecond, "%v", s.judged)
}

// owners are the controllers that should have the hosts.
func (s *sharing) owners(names ...string) map[string]string {
	s.t.Helper()
	machine, err := os.Hostname()
	require.NoError(s.t, err)
	named := make(map[string]string) // by id
	for _, name := range names {
		named[sharding.ID(machine, filepath.Join(s.dir, name))] = name
	}
	owners := make(map[string]string)
	for _, host := range s.hosts {
		owners[host] = named[shards.Ranking(shards.Of(host, s.count), slices.Collect(maps.Keys(named)))[0]]
	}
	return owners
}

// violateAll starts a process that breaks a rule on each host, and waits until all have ended.
func (s *sharing) violateAll() {
	s.t.Helper()
	var jobs []*testfleet.Process
	for _, host := range s.hosts {
		jobs = append(jobs, s.violate(host))
	}
	for _, job := range jobs {
		s.ended(job)
	}
}

// Over real sshd, sudo and etcd: controllers divide the hosts. Each host is judged by one of them;
// when one joins, ends or is killed, its hosts are judged by others; and each process is ended once.
func TestShards(t *testing.T) {
	t.Parallel()
	hosts := []string{"gpu-01", "gpu-03", "gpu-05", "gpu-08"} // of three shards
	s := &sharing{electors: newElectors(t, hosts...), count: 4, judged: make(map[snapshot.Hostname]map[string]time.Time)}
	names := s.names()
	flags := []string{"--non-env-processes", "--shards", "4"}
	first := s.join(names[0], flags...)
	s.judges(names[:1]...)
	s.violateAll()

	second := s.join(names[1], flags...)
	s.judges(names[:2]...)
	s.violateAll()
	third := s.join(names[2], flags...)
	s.judges(names...)
	s.violateAll()
	s.shows(func(d *controllers.Document, code int) bool {
		return code == command.ExitOK && d.Election.Leads && len(d.Election.Members) == len(names) && len(d.Hosts) == len(s.hosts)
	})

	second.signal(os.Kill)
	s.violateAll()
	s.judges(names[0], names[2])
	s.shows(func(d *controllers.Document, code int) bool {
		return code == command.ExitSomeFailed && len(d.Election.Members) == 2 && len(d.Election.Controllers) == 1 && d.Election.Controllers[0].Role == "lost"
	})
	third.signal(syscall.SIGTERM)
	s.judges(names[0])
	third.exits(command.ExitOK)
	s.violateAll()

	slow := s.begin("slow", "--shards", "4", "--interval", "10m")
	slow.says("--shards with --interval 10m: the longest interval is 5m")
	slow.exits(command.ExitFailed)
	second = s.begin(names[0], flags...)
	second.says("--state-dir: another controller is using this folder: " + filepath.Join(s.dir, names[0]))
	second.exits(command.ExitFailed)
	refused := s.begin("fourth", "--non-env-processes", "--shards", "3")
	refused.says("other controllers use another number of shards: stop them first")
	refused.exits(command.ExitFailed)

	first.signal(syscall.SIGTERM)
	first.exits(command.ExitOK)
	s.eachOnce(5 * len(hosts))
}

// shows waits until `genv remote controllers` shows something.
func (s *sharing) shows(something func(d *controllers.Document, code int) bool) {
	s.t.Helper()
	args := []string{"--leader", "etcd://" + s.etcd.Addresses() + "/genv/lab", "-F", s.fleet.SSHConfig(), "-H", strings.Join(s.hosts, ",")}
	require.Eventually(s.t, func() bool {
		d, code := controllersShown(s.t, args...)
		return something(&d, code)
	}, time.Minute, 100*time.Millisecond)
}

// eachOnce requires of the records that so many processes were ended, each by one report.
func (s *sharing) eachOnce(want int) {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.dir, "*.jsonl"))
	require.NoError(s.t, err)
	ended := make(map[string]int)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(s.t, err)
		for line := range bytes.Lines(data) {
			var r audit.Record
			require.NoError(s.t, json.Unmarshal(line, &r))
			if r.Kind == audit.KindReport && r.PID != 0 {
				ended[fmt.Sprint(r.Host, " ", r.PID, " ", r.Start)]++
			}
		}
	}
	require.Len(s.t, ended, want, "%v", ended)
	for what, n := range ended {
		require.Equal(s.t, 1, n, what)
	}
}
