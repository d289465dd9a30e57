package replay_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/fairshare"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/recording"
	"github.com/seed-3119e985/genv/remote/recording/replay"
	"github.com/seed-3119e985/genv/remote/recording/simulated"
	"github.com/seed-3119e985/genv/snapshot"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// never is later than any moment.
var never = noon.Add(1000 * time.Hour)

func parse(t testing.TB, text string) *policy.File {
	file, err := policy.Parse("policy.yaml", []byte(text))
	require.NoError(t, err)
	return file
}

const (
	lenient = "defaults: {env-devices: false, env-memory: false}\n"
	strict  = `
defaults:
  non-env-processes: true
  max-devices-per-user: 2
  max-envs-per-user: 3
  idle: {after: 20m, below: 5%}
  max-duration: 2h
  warn: {for: 4m}
limits: {max-terminations: 20, max-detachments: 20}
exempt: {users: [user01, user02]}
`
	// patient warns, and never acts.
	patient = `
defaults:
  non-env-processes: true
  max-devices-per-user: 2
  idle: {after: 20m, below: 5%}
  warn: {for: 300d}
`
)

// live is a controller in memory: what it judges is recorded.
type live struct {
	t      *testing.T
	fleet  *simulated.Fleet
	policy *policy.File
	dryRun bool
	memory enforce.Memory
	now    time.Time
	out    bytes.Buffer
	w      *recording.Writer
	as     *recording.Policy
	number int
	boosts map[snapshot.Username]int
	share  fairshare.Memory

	found, warned     int
	ended, detachedAt map[string]bool
	present           map[string]bool
}

func start(t *testing.T, seed uint64, text string) *live {
	l := &live{
		t: t, fleet: simulated.New(seed, 6, 4, noon), policy: parse(t, text), now: noon,
		ended: make(map[string]bool), detachedAt: make(map[string]bool), present: make(map[string]bool),
	}
	l.as = recording.PolicyOf(l.policy)
	l.w = recording.NewWriter(&l.out, recording.Header{Every: time.Minute})
	return l
}

// cycles judges so many times, once a minute, and does what follows at once.
func (l *live) cycles(n int) {
	for range n {
		l.number++
		l.now = l.now.Add(time.Minute)
		l.fleet.Change(l.now, 6)
		share := fairshare.Memory{Free: len(l.boosts) > 0, Light: make(map[snapshot.Username]bool)}
		for user := range l.boosts {
			share.Light[user] = true
		}
		l.memory, l.share = share.Forget(l.share, l.memory), share
		in := recording.Input{Before: l.memory, Judgement: recording.Judgement{Boosts: l.boosts, Run: "run", Number: l.number, Time: l.now, Policy: l.as, DryRun: l.dryRun, Cluster: l.fleet.Cluster()}}
		plan, after, events := enforce.Judge(share.Policy(l.policy.FairShare.Value, l.policy), in.Cluster, l.memory, l.now)
		in.After, in.Digest = after, recording.DigestOf(&plan, events)
		require.NoError(l.t, l.w.Add(&in))
		l.memory = after
		l.count(&plan, events, in.Cluster)
		if !l.dryRun {
			l.act(&plan)
		}
	}
}

// count counts independently of the package.
func (l *live) count(plan *enforce.Plan, events []enforce.Event, cluster snapshot.Cluster) {
	silent := make(map[snapshot.Hostname]bool)
	for _, h := range cluster.Hosts {
		silent[h.Name] = h.Err != nil
	}
	before := l.present
	l.present = make(map[string]bool)
	for i := range plan.Findings {
		f := &plan.Findings[i]
		l.present[f.ID] = true
		if !before[f.ID] {
			l.found++
		}
	}
	for i := range events {
		if e := &events[i]; e.Kind == enforce.EventNotify && e.Finding.Pending {
			l.warned++
		}
	}
	for id := range before { // a host that doesn't answer may still have it
		if known, ok := l.memory.Findings[id]; ok && silent[known.Host] {
			l.present[id] = true
		}
	}
}

func (l *live) act(plan *enforce.Plan) {
	for i := range plan.Reports {
		r := plan.Reports[i]
		r.Report.ID = fmt.Sprint(l.number, "/", i)
		l.memory = l.memory.Begin(r, l.now)
		var outcomes []enforce.Outcome
		for _, d := range r.Report.Detach {
			l.detachedAt[fmt.Sprint(r.Host, d.Device, d.Environment.EID, l.number)] = true
			l.fleet.Detach(r.Host, d.Device, d.Environment.EID)
			outcomes = append(outcomes, enforce.Outcome{Device: d.Device, EID: d.Environment.EID, Status: enforce.StatusDetached})
		}
		for _, x := range r.Report.Terminate {
			l.ended[fmt.Sprint(r.Host, x.Process.PID)] = true
			l.fleet.Remove(r.Host, x.Process.PID)
			outcomes = append(outcomes, enforce.Outcome{PID: x.Process.PID, Status: enforce.StatusTerminated})
		}
		l.memory = l.memory.End(r.Report.ID).Learn(r, outcomes, l.now)
	}
}

// restart begins another file, as another run does that has the memory of this one.
func (l *live) restart() []byte {
	require.NoError(l.t, l.w.Close())
	file := bytes.Clone(l.out.Bytes())
	l.out.Reset()
	l.w = recording.NewWriter(&l.out, recording.Header{Every: time.Minute})
	return file
}

// try replays files.
func try(t *testing.T, p *policy.File, since time.Time, files ...[]byte) replay.Result {
	trial := replay.New(p, since, never)
	for _, file := range files {
		r, err := recording.NewReader(bytes.NewReader(file))
		require.NoError(t, err)
		for {
			step, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			require.NoError(t, trial.Step(step))
		}
		r.Close()
	}
	return trial.Result()
}

// seeds are how many random fleets a property test tries: one with the race detector, which makes
// each of them slow, and more in `make soak`.
func seeds() uint64 {
	info, ok := debug.ReadBuildInfo()
	switch {
	case os.Getenv("GENV_SOAK") != "":
		return 30
	case ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}):
		return 1
	}
	return 3
}

// The policy that was in force would have done what it did, and that is what the recording shows.
func TestPropertyTheSamePolicy(t *testing.T) {
	t.Parallel()
	for seed := range seeds() {
		l := start(t, seed, strict)
		l.cycles(100)
		first := l.restart()
		l.cycles(50)
		result := try(t, parse(t, strict), noon, first, l.restart())
		require.Equal(t, 150, result.Judgements)
		require.Zero(t, result.Different)
		require.Equal(t, 1, result.Restarts, "only the first one knew nothing")
		require.Empty(t, result.Gaps)
		require.Equal(t, result.Was, result.Would, seed)
		require.Equal(t, result.WasTotal, result.WouldTotal)
		require.Empty(t, result.Begin)
		require.Empty(t, result.End)
		require.Equal(t, l.found, result.WasTotal.Found)
		require.Equal(t, l.warned, result.WasTotal.Warned)
		require.Len(t, l.ended, result.WasTotal.Terminated)
		require.Len(t, l.detachedAt, result.WasTotal.Detached)
		require.Positive(t, result.WasTotal.Terminated)
		require.Positive(t, result.WasTotal.Detached)
		require.Len(t, result.Policies, 1)
	}
}

// A policy that acts on nothing would have found what it finds live.
func TestPropertyAnotherPolicyThatDoesNotAct(t *testing.T) {
	t.Parallel()
	for seed := range seeds() {
		l := start(t, seed, lenient)
		l.cycles(100)
		other := start(t, seed, patient)
		other.cycles(100)
		result := try(t, parse(t, patient), noon, l.restart())
		require.Zero(t, result.Different)
		require.Zero(t, result.WasTotal)
		require.Equal(t, other.found, result.WouldTotal.Found)
		require.Equal(t, other.warned, result.WouldTotal.Warned)
		require.Positive(t, result.WouldTotal.Warned)
		require.Zero(t, result.WouldTotal.Terminated+result.WouldTotal.Detached)
		require.NotEmpty(t, result.Begin)
		require.Empty(t, result.End)
	}
}

// From the middle of a recording, what the controller remembers is known.
func TestFromTheMiddle(t *testing.T) {
	l := start(t, 3, strict)
	l.cycles(100)
	result := try(t, parse(t, strict), noon.Add(50*time.Minute), l.restart())
	require.Equal(t, noon.Add(50*time.Minute), result.From.UTC())
	require.Equal(t, 51, result.Judgements)
	require.Equal(t, result.Was, result.Would)
	require.Zero(t, result.Different)
}

// Of a dry run, both policies are said as if they had acted.
func TestDryRun(t *testing.T) {
	l := start(t, 4, strict)
	l.dryRun = true
	l.cycles(100)
	result := try(t, parse(t, strict), noon, l.restart())
	require.Zero(t, result.Different)
	require.Equal(t, 100, result.DryRun)
	require.Equal(t, result.Was, result.Would)
	require.Positive(t, result.WasTotal.Terminated)
}

// What another policy would end counts once, and not for caps any more.
func TestWhatWouldEndCountsOnce(t *testing.T) {
	l := start(t, 5, lenient)
	l.cycles(100)
	result := try(t, parse(t, strict), noon, l.restart())
	processes := make(map[string]bool)
	for _, c := range result.Begin {
		if c.Rule == enforce.RuleNonEnvProcesses {
			require.False(t, processes[c.ID], c.ID)
			processes[c.ID] = true
		}
	}
	require.Positive(t, result.WouldTotal.Terminated)
	require.Zero(t, result.WasTotal)
	for key, counts := range result.Would {
		require.NotContains(t, []snapshot.Username{"user01", "user02"}, key.User)
		if key.Rule == enforce.RuleNonEnvProcesses {
			require.LessOrEqual(t, counts.Terminated, counts.Found)
		}
	}
}

// What is missing in a recording is said.
func TestWhatIsNotKnown(t *testing.T) {
	l := start(t, 6, lenient)
	l.cycles(20)
	l.now = l.now.Add(time.Hour)
	l.cycles(10)
	first := l.restart()
	l.now = l.now.Add(2 * time.Hour)
	l.memory = enforce.Memory{}
	l.policy = parse(t, strict)
	l.as = recording.PolicyOf(l.policy)
	l.cycles(40)
	result := try(t, parse(t, "defaults: {guard: enforce}\n"), noon, first, l.restart())
	require.Len(t, result.Gaps, 2)
	require.Equal(t, 61*time.Minute, result.Gaps[0].Until.Sub(result.Gaps[0].Since))
	require.Equal(t, 2, result.Restarts)
	require.Len(t, result.Policies, 2)
	require.Zero(t, result.Different)
	require.True(t, result.Guard)
	require.NotEmpty(t, result.Silent)
}

// Who had a boost by fair share is known, and who would have had one only if the condition is the
// same.
func TestFairShare(t *testing.T) {
	boosted := strict + "fair-share: {boost: 3, free: 20%}\n"
	l := start(t, 5, boosted)
	l.boosts = map[snapshot.Username]int{"user03": 3, "user04": 3}
	l.cycles(60)
	l.boosts = nil
	l.cycles(60)
	file := l.restart()
	same := try(t, parse(t, boosted), noon, file)
	require.Zero(t, same.Different)
	require.Equal(t, same.Was, same.Would)
	require.False(t, same.FairShare)
	without := try(t, parse(t, strict), noon, file)
	require.Zero(t, without.Different)
	require.False(t, without.FairShare)
	require.True(t, try(t, parse(t, strict+"fair-share: {boost: 3, free: 50%}\n"), noon, file).FairShare)
}

// Another version of genv may come to another result, which is said.
func TestAnotherResult(t *testing.T) {
	l := start(t, 6, strict)
	l.cycles(20)
	l.policy = parse(t, lenient) // and the recording says strict
	l.cycles(10)
	require.Positive(t, try(t, parse(t, lenient), noon, l.restart()).Different)
}
