package enforcement_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/statedir"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// realSite is hosts of real OpenSSH, users and Unix groups, on which the rules of a real site are enforced.
type realSite struct {
	*sshd.Fleet
	t    *testing.T
	dir  string
	log  string // of the last run
	jobs map[string]*testfleet.Process
}

// openSite writes the rules of a site, as policy's tests have them, with words replaced.
func openSite(t *testing.T, rules string, hosts ...string) *realSite {
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named(hosts...), Genv: genvtest.Program(t)})
	s := &realSite{f, t, t.TempDir(), "", map[string]*testfleet.Process{}}
	s.setRules(rules)
	return s
}

func (s *realSite) setRules(rules string, replaced ...string) {
	text := strings.NewReplacer(replaced...).Replace(genvtest.Read(s.t, filepath.Join("../../../enforce/policy/testdata/sites", rules)))
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, "policy.yaml"), []byte(text), 0o600))
}

// cycle enforces the rules once, or as more says.
func (s *realSite) cycle(more ...string) genvtest.Result {
	var names []string
	for _, h := range s.Hosts() {
		names = append(names, h.Name)
	}
	s.log = filepath.Join(s.t.TempDir(), "audit.jsonl")
	args := []string{
		"remote", "-F", s.SSHConfig(), "-H", strings.Join(names, ","), "enforce", "--policy", filepath.Join(s.dir, "policy.yaml"),
		"--interval", "0", "--state-dir", filepath.Join(s.dir, "state"), "--audit-log", s.log,
	}
	return genvtest.Run(s.t, append(args, more...)...).OK(s.t)
}

// told is what people were told in the last run.
func (s *realSite) told() map[string]string {
	told := map[string]string{}
	if info, err := os.Stat(s.log); err != nil || info.Size() == 0 {
		return told
	}
	for user, records := range toldInLastRun(s.t, s.log) {
		for _, r := range records {
			told[user] += r.Text + "\n"
		}
	}
	return told
}

// memory has a test change what the controller remembers, between two runs.
func (s *realSite) memory(change func(*controller.FleetMemory)) {
	store := proctest.Try(statedir.Open(filepath.Join(s.dir, "state"))).OK(s.t)
	defer store.Close()
	m := proctest.Try(store.Load(s.t.Context())).OK(s.t)
	change(&m)
	require.NoError(s.t, store.Save(s.t.Context(), proctest.Try(m.Encode(time.Now())).OK(s.t)))
}

// later has warnings and idle times run for so long, as if the controller had looked all the time.
func (s *realSite) later(d time.Duration) *realSite {
	earlier := func(at time.Time) time.Time {
		if at.IsZero() {
			return at
		}
		return at.Add(-d)
	}
	s.memory(func(m *controller.FleetMemory) {
		for key, p := range m.Rules.Present {
			p.Since = earlier(p.Since)
			m.Rules.Present[key] = p
		}
		for _, uses := range m.Rules.Uses {
			for key, u := range uses {
				u.Idle, u.LowPower, u.Attached = earlier(u.Idle), earlier(u.LowPower), earlier(u.Attached)
				uses[key] = u
			}
		}
	})
	return s
}

// start starts a job on GPUs of a host, in an environment or in none. A load below 0 is a high one.
func (s *realSite) start(name, host, user string, env *testfleet.Env, load int, on ...snapshot.DeviceIndex) {
	job := testfleet.Job{User: user, Env: genvtest.Outside}
	if env != nil {
		job.Env = append(job.Env, env.Var())
	}
	for _, index := range on {
		use := testfleet.Use{Device: index, MiB: 100}
		if load >= 0 {
			use.Load = &load
		}
		job.Uses = append(job.Uses, use)
	}
	s.jobs[name] = genvtest.StartJob(s.t, s.Host(host), job)
}

func (s *realSite) activate(host, user string, on ...snapshot.DeviceIndex) *testfleet.Env {
	return genvtest.Activate(s.t, s.Host(host), testfleet.Environment{User: user, Devices: on})
}

// requireEnded checks which jobs have ended: these, and no others.
func (s *realSite) requireEnded(names ...string) {
	s.t.Helper()
	var ended []string
	for name, p := range s.jobs {
		if !p.Running() {
			ended = append(ended, name)
		}
	}
	slices.Sort(names)
	slices.Sort(ended)
	require.Equal(s.t, names, ended)
}

func (s *realSite) requireTold(names ...string) {
	s.t.Helper()
	require.Equal(s.t, names, slices.Sorted(maps.Keys(s.told())))
}

// attached is how many GPUs of a host are attached to a user's environments.
func (s *realSite) attached(host string, env *testfleet.Env) int {
	return len(snapshot.AttachedTo(genvtest.Devices(s.t, s.Host(host)), env.EID))
}

// Rules 2: 20 GPU hours a week.
func TestHoursOverRealSSH(t *testing.T) {
	s := openSite(t, "02.yaml", "gpu-01")
	s.start("eve 1", "gpu-01", "eve", nil, -1, 0)
	s.start("eve 2", "gpu-01", "eve", nil, -1, 1)
	s.start("alice", "gpu-01", "alice", nil, -1, 2)
	loop := []string{"--interval", "1", "--cycles", "6"}
	s.cycle(loop...)
	path, week := filepath.Join(s.dir, "state", store.HoursName), enforce.Hours{}
	seconds := func(user snapshot.Username) float64 {
		table := proctest.Try(store.OpenToRead(t.Context(), path, store.Options{In: time.UTC})).OK(t)
		defer table.Close()
		hours, _, err := table.Hours(t.Context())
		require.NoError(t, err)
		week = hours["week"]
		return week.Seconds[user]
	}
	require.Positive(t, seconds("eve"))
	require.InDelta(t, seconds("eve"), 2*seconds("alice"), 1)
	before := seconds("eve")
	s.memory(func(m *controller.FleetMemory) { // as if it had been away
		for name, h := range m.Rules.Hosts {
			h.Looked = h.Looked.Add(-10 * time.Minute)
			m.Rules.Hosts[name] = h
		}
	})
	s.cycle("--interval", "1", "--cycles", "2")
	require.Less(t, seconds("eve"), before+60, "while the controller was away nothing counted")

	set := func(hours float64, period time.Duration) {
		require.NoError(t, os.Remove(path))
		table := proctest.Try(store.Open(t.Context(), path, store.Options{In: time.UTC})).OK(t)
		week.Period, week.Seconds["eve"] = week.Period.Add(period), hours*3600
		require.NoError(t, table.SaveHours(t.Context(), map[string]enforce.Hours{"week": week}, time.Now()))
		require.NoError(t, table.Close())
	}
	set(19.9, 0)
	s.cycle()
	s.requireTold()
	set(20-1./3600, 0) // a second of a GPU is left
	s.cycle(loop...)
	s.requireTold("eve")
	require.Contains(t, s.told()["eve"], "20.0 GPU hours of the 20.0 GPU hours that cap week allows are used")
	s.requireEnded()
	r := genvtest.Run(t, "remote", "report", "--cap", "week", "--policy", filepath.Join(s.dir, "policy.yaml"), "--state-dir", filepath.Join(s.dir, "state"), "--format", "csv")
	require.Regexp(t, `\neve,7[12]\d{3},72000,`, r.Out, r.Err)
	s.later(16 * time.Minute).cycle()
	s.requireEnded("eve 1", "eve 2")

	set(20, -7*24*time.Hour) // on Monday
	s.start("eve 3", "gpu-01", "eve", nil, -1, 3)
	s.cycle()
	s.later(16 * time.Minute).cycle()
	s.requireEnded("eve 1", "eve 2")
}

// Rules 4: a group has twelve GPUs, of which its members chose who uses how many; a guest has one.
func TestAGroupsShareOverRealSSH(t *testing.T) {
	s := openSite(t, "04.yaml", "gpu-01", "gpu-02", "gpu-03")
	busy := func(host, user string, env *testfleet.Env, on ...snapshot.DeviceIndex) {
		for _, index := range on {
			s.start(user+" on "+host+"/"+index.String(), host, user, env, -1, index)
		}
	}
	kim := s.activate("gpu-01", "kim", 0, 1, 2, 3, 4, 5)
	kims := s.activate("gpu-02", "kim", 0, 1, 2, 3)
	lee := s.activate("gpu-02", "lee", 4, 5, 6, 7)
	alice := s.activate("gpu-03", "alice", 0, 1, 2) // she is in another group
	gus := s.activate("gpu-03", "gus", 3)
	busy("gpu-01", "kim", kim, 0, 1, 2)
	busy("gpu-02", "kim", kims, 0, 1, 2)
	busy("gpu-02", "lee", lee, 4, 5, 6, 7)
	busy("gpu-03", "gus", gus, 3)
	r := s.cycle()
	s.requireEnded()
	require.Equal(t, 8, s.attached("gpu-01", kim)+s.attached("gpu-02", kims), r.Out)
	require.Equal(t, 4, s.attached("gpu-02", lee))
	require.Equal(t, 3, s.attached("gpu-03", alice))
	require.Equal(t, 1, s.attached("gpu-03", gus))
	s.requireTold("kim")
	require.Contains(t, s.told()["kim"], "those who share cap chem have 14 GPUs")
	require.Contains(t, s.cycle().Err, "0 findings")
}

// Rules 8: idle means idle, also for anyone who never heard of genv.
func TestIdleOverRealSSH(t *testing.T) {
	s := openSite(t, "08.yaml", "gpu-01")
	s.start("xia", "gpu-01", "xia", nil, 0, 0)
	s.start("yan", "gpu-01", "yan", nil, 97, 1)
	s.start("zoe", "gpu-01", "zoe", nil, -1, 2)
	s.start("ada", "gpu-01", "ada", nil, -1, 4, 5, 6, 7)
	require.NoError(t, s.Host("gpu-01").ChangeDriver(func(d *gpus.Driver) {
		d.Devices[1].Watt, d.Devices[2].Fault = 60, gpus.Partial
		d.Apps[len(d.Apps)-1].Load = new(0)
	}))
	bo := s.activate("gpu-01", "bo", 3)
	s.cycle()
	s.requireTold()
	s.later(2*time.Hour + time.Minute).cycle()
	s.requireTold("bo", "xia", "yan")
	s.requireEnded()
	s.later(29 * time.Minute)
	bo.Shell.Kill()
	bos := s.activate("gpu-01", "bo", 3) // as a loop of genv run does
	s.cycle()
	s.requireEnded()
	require.Equal(t, 1, s.attached("gpu-01", bos))
	s.later(2 * time.Minute)
	r := s.cycle()
	s.requireEnded("xia", "yan")
	require.Zero(t, s.attached("gpu-01", bos), r.Out)
}

// Rules 12: caps on the first day, for people who run what they want by hand.
func TestCapsOnTheFirstDayOverRealSSH(t *testing.T) {
	const written = "{days: mon-fri, hours: 8-20}"
	byDay, atNight := []string{written, "{hours: 0-24}"}, []string{written, "{to: 2020-01-01}"}
	hosts := []string{"gpu-01", "gpu-02", "gpu-03"}
	open := func(t *testing.T, replaced ...string) *realSite {
		s := openSite(t, "12.yaml", hosts...)
		s.setRules("12.yaml", replaced...)
		s.start("alice 1", "gpu-01", "alice", nil, -1, 6)
		s.start("alice 2", "gpu-02", "alice", nil, -1, 6)
		return s
	}
	three := func(s *realSite, loads ...int) {
		for i, name := range []string{"oldest", "older", "newest"} {
			s.start(name, hosts[i], "fay", nil, loads[i], 0)
			time.Sleep(2100 * time.Millisecond) // it counts by the second, give or take one
		}
	}
	t.Run("at noon the newest ends, after a warning", func(t *testing.T) {
		s := open(t, byDay...)
		three(s, -1, -1, -1)
		s.cycle()
		s.requireTold("fay")
		require.Contains(t, s.told()["fay"], "User fay has 3 GPUs on 3 hosts")
		s.requireEnded()
		s.later(22 * time.Minute).cycle() // what a schedule makes due is spread over the last quarter
		s.requireEnded()
		s.later(9 * time.Minute).cycle()
		s.requireEnded("newest")
		require.Contains(t, s.cycle().Err, "0 findings")
	})
	t.Run("at night nothing does", func(t *testing.T) {
		s := open(t, atNight...)
		three(s, -1, -1, -1)
		s.cycle()
		s.requireTold()
		s.later(time.Hour).cycle()
		s.requireEnded()
	})
	t.Run("with idle, what is idle ends instead", func(t *testing.T) {
		s := open(t, append(slices.Clone(byDay), "warn: 30m", "warn: 30m, idle: {after: 2h, below: 5%}")...)
		three(s, -1, 0, -1)
		s.cycle()
		s.later(2*time.Hour + time.Minute)
		s.cycle() // whom the choice falls on then is told at once
		s.later(31 * time.Minute).cycle()
		s.requireEnded("older")
	})
	t.Run("one job over three GPUs ends, and its user is told why", func(t *testing.T) {
		s := open(t, byDay...)
		s.start("one", "gpu-01", "fay", nil, -1, 0, 1, 2)
		s.cycle()
		s.requireTold("fay")
		require.Contains(t, s.told()["fay"], "3 GPUs")
		s.later(31 * time.Minute).cycle()
		s.requireEnded("one")
	})
}
