package replay_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/controller/statedir"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/remote/recording"
	"github.com/seed-3119e985/genv/remote/recording/recorder"
	"github.com/seed-3119e985/genv/remote/recording/replay"
	"github.com/seed-3119e985/genv/remote/recording/simulated"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const exactPolicy = `
defaults:
  non-env-processes: true
  max-devices-per-user: 2
  max-envs-per-user: 3
  idle: {after: 10m, below: 5%}
  max-duration: 40m
  warn: {for: 90s}
overrides:
  - hosts: [h1]
    set: {warn: {cycles: 2}, grace: 3s, kill: true}
exempt: {users: [user05], environments: [{user: user11, name: training}]}
limits: {max-terminations: 6}
`

// spedUp is how much faster than the real one the clock of the controllers is: the times of the
// policy pass in seconds.
const spedUp = 600

// sshFleet is a fleet of hosts over SSH in this process, and controllers that enforce it.
type sshFleet struct {
	t       *testing.T
	hosts   []*genvhost.Host
	servers *inprocess.Fleet
	pool    *agent.Pool
	list    []remote.Host
	fleet   *simulated.Fleet
	begun   time.Time
	dir     string

	mu        sync.Mutex
	judged    []controller.Judged
	reported  map[string]bool
	recorders controller.Witness
}

func (r *sshFleet) now() time.Time { return noon.Add(time.Since(r.begun) * spedUp) }

// Judged implements controller.Witness: it keeps what is judged, to compare.
func (r *sshFleet) Judged(j *controller.Judged) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.judged = append(r.judged, *j)
	r.recorders.Judged(j)
}

func startSSHFleet(t *testing.T) *sshFleet {
	r := &sshFleet{t: t, begun: time.Now(), dir: t.TempDir(), fleet: simulated.New(9, 5, 4, noon)}
	var servers []*inprocess.Server
	for i := range r.fleet.Hosts {
		state := *r.fleet.Hosts[i].Snapshot
		state.MachineID = fmt.Sprint("machine", i)
		h := genvhost.New(&state).WithEvents()
		name := fmt.Sprintf("h%d", i)
		r.hosts, r.list = append(r.hosts, h), append(r.list, remote.Host{Name: name, Labels: map[string]string{"rack": "1"}})
		servers = append(servers, &inprocess.Server{Name: name, Address: fmt.Sprintf("127.96.0.%d", i+1), Handler: h})
	}
	var err error
	r.servers, err = inprocess.Start(t.TempDir(), 0, servers...)
	require.NoError(t, err)
	t.Cleanup(r.servers.Close)
	client, err := sshclient.New(sshclient.Options{ConfigFile: r.servers.SSHConfig(), CommandTimeout: 5 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	r.pool = &agent.Pool{Start: agent.StartWith(client.Start), Network: client, Timeout: 5 * time.Second, Log: zerolog.Nop()}
	t.Cleanup(r.pool.Close)
	return r
}

// change changes a host as the simulated fleet does.
func (r *sshFleet) change(i int) {
	h := &r.fleet.Hosts[i]
	down := h.Err != nil
	r.hosts[i].Change(func(s *snapshot.Snapshot) {
		if !down {
			state := *s
			h.Snapshot = &state
		}
		r.fleet.ChangeHost(i)
		if h.Snapshot != nil {
			machine := s.MachineID
			*s = *h.Snapshot
			s.MachineID = machine
		}
	})
	if lost := h.Err != nil; lost != down {
		var faults []inprocess.Fault
		if lost {
			faults = append(faults, inprocess.Down())
		}
		_ = r.servers.Hosts()[i].Inject(faults...) // a port that is taken heals later
	}
}

// run runs a controller for so many cycles, with what the one before remembered.
func (r *sshFleet) run(text, reloaded string, cycles int) {
	store, err := statedir.Open(r.dir)
	require.NoError(r.t, err)
	rec := recorder.Start(recorder.Options{Dir: filepath.Join(r.dir, recording.FolderName), Keep: 24 * time.Hour, MaxBytes: 1 << 30, Now: r.now, Log: zerolog.Nop(), MaxWaiting: 10_000})
	r.recorders = rec
	queue := controller.NewQueue()
	build := func(text string) *controller.Controller {
		file := parse(r.t, text)
		rec.Use(recording.PolicyOf(file), 6*time.Second)
		return &controller.Controller{
			Asker: controller.Asker{Hosts: r.list, Link: r.pool, Fanout: 5}, Policy: file, Now: r.now, Witness: r, Events: r.pool,
			Sinks: []controller.Sink{r}, Audit: &audit.Log{Path: filepath.Join(r.dir, "audit"), MaxBytes: 1 << 20, Keep: 1},
		}
	}
	first := build(text)
	first.Memory, err = store.Load(r.list, r.now())
	require.NoError(r.t, err)
	last := first
	hangup := make(chan os.Signal, 1)
	var asked sync.WaitGroup
	var refused error
	schedule := controller.Schedule{Interval: 20 * time.Millisecond, Cycles: cycles, Actions: queue, Hangup: hangup, Reload: func() *controller.Controller {
		last = build(reloaded)
		return last
	}}
	n := 0
	require.NoError(r.t, controller.Loop(r.t.Context(), first, schedule, func(controller.Cycle) error {
		switch n {
		case cycles / 3 * 2:
			asked.Go(func() {
				_, refused = queue.Do(r.t.Context(), operator.Person{Name: "root"}, operator.Action{Schema: operator.ActionSchema, Kind: operator.Exempt, User: "user07", Hours: 1, Reason: "a test"})
			})
		case cycles / 2 * 2:
			hangup <- os.Interrupt
		}
		for range 2 {
			r.change(n % len(r.hosts))
			n++
		}
		return nil
	}))
	asked.Wait()
	require.NoError(r.t, refused)
	require.NoError(r.t, store.Save(&last.Memory, r.now()))
	require.NoError(r.t, store.Close())
	rec.Close()
}

// Consume implements controller.Sink: it keeps what was sent.
func (r *sshFleet) Consume(_ *controller.Cycle, events []enforce.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range events {
		e := &events[i]
		if e.Kind != enforce.EventActing {
			continue
		}
		for k := range e.Report.Terminate {
			r.reported[fmt.Sprintf("%s/%d", e.Host, e.Report.Terminate[k].Process.PID)] = true
		}
	}
}

// What controllers over SSH judged, with early cycles, warnings, idle times, leases, exemptions,
// hosts that fail, reports under way, a reload and a restart, is judged again with the same
// result, cycle by cycle.
func TestARealRunIsJudgedAgainExactly(t *testing.T) {
	t.Parallel()
	r := startSSHFleet(t)
	r.reported = make(map[string]bool)
	r.run(exactPolicy, lenient, 70)
	r.run(exactPolicy, exactPolicy, 70)
	files, err := recording.Files(filepath.Join(r.dir, recording.FolderName))
	require.NoError(t, err)
	trial := replay.New(parse(t, exactPolicy), noon, never)
	steps, reports, decisions := 0, 0, make(map[enforce.Decision]int)
	rules := make(map[enforce.Rule]int)
	exempted := false
	summary, err := recording.Read(files, func(step *recording.Step) error {
		j := &r.judged[steps]
		steps++
		require.Equal(t, j.Number, step.Number)
		require.Equal(t, j.Early, step.Early)
		require.True(t, j.Now.Equal(step.Time))
		require.Equal(t, recording.DigestOf(&j.Plan, j.Events), step.Digest)
		reports += len(j.Plan.Reports)
		for i := range j.Plan.Findings {
			decisions[j.Plan.Findings[i].Decision()]++
			rules[j.Plan.Findings[i].Rule]++
		}
		exempted = exempted || strings.Contains(fmt.Sprint(step.Operator.Exemptions), "user07")
		return trial.Step(step)
	})
	require.NoError(t, err)
	require.Empty(t, summary.Damage)
	require.Len(t, r.judged, steps)
	result := trial.Result()
	require.Zero(t, result.Different)
	require.Equal(t, steps, result.Judgements)
	t.Logf("%d judgements, %d early, %d reports, decisions %v, rules %v, was %+v, would %+v", steps, result.Early, reports, decisions, rules, result.WasTotal, result.WouldTotal)
	require.Positive(t, result.Early)
	require.Positive(t, reports)
	require.Equal(t, len(r.reported), result.WasTotal.Terminated, slices.Sorted(maps.Keys(r.reported)))
	require.Len(t, result.Policies, 3)
	require.True(t, exempted, "what an operator asked for is recorded")
}
