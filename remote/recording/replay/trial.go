package replay

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/recording"
	"github.com/seed-3119e985/genv/snapshot"
)

// Trial compares a policy with those that were in force.
type Trial struct {
	policy       *policy.File
	since, until time.Time

	exact *world // the policy in force, with what the controller remembered
	dry   *world // the policy in force, if it would have acted while the controller did not
	other *world // the policy to try; nil before since
	was   *tally
	would *tally

	known   *recording.Policy // that exact has
	sent    map[string]bool   // reports that were under way when the policy to try began
	last    time.Time         // the last full judgement
	result  Result
	silent  map[snapshot.Hostname]time.Duration
	begun   bool
	lastSil map[snapshot.Hostname]bool
}

// Result is what a Trial came to.
type Result struct {
	// From and To are the first and the last judgement.
	From, To time.Time
	// Judgements is how many there were, and Early how many of them between two full cycles;
	// Different is how many were recorded with another result than this version of genv comes to.
	Judgements, Early, Different int
	// DryRun is how many were made by a controller that acted on nothing: for these, Was is what it
	// would have done.
	DryRun int
	// Policies are those that were in force, in the order of time.
	Policies []*recording.Policy
	// Restarts is how often the controller began without knowing anything.
	Restarts int
	Gaps     []recording.Gap
	// Silent is for how long each host did not answer.
	Silent map[snapshot.Hostname]time.Duration
	// Guard says that the policy asks for the kernel guard, which is not tried.
	Guard bool
	// FairShare says that the policy asks for boosts of light users, and it isn't recorded who they
	// were: none is tried.
	FairShare bool

	Was, Would           map[Key]Counts
	WasTotal, WouldTotal Counts
	// Begin are the cases that would have been found or acted on and were not, and End those that
	// were and would not; each at most MaxCases.
	Begin, End []Case
	// Left is how many cases are not among them, since there are too many.
	Left int
}

// New begins a trial of a policy with what was judged from one moment until before another one.
func New(policy *policy.File, since, until time.Time) *Trial {
	return &Trial{
		policy: policy, since: since, until: until, exact: new(world),
		was: newTally(), would: newTally(), silent: make(map[snapshot.Hostname]time.Duration),
	}
}

// Step takes in a judgement. They have to be in the order of time, and complete from the
// beginning of a file.
func (t *Trial) Step(step *recording.Step) error {
	if !step.Time.Before(t.until) {
		return nil
	}
	if err := t.usePolicy(step.Policy); err != nil {
		return err
	}
	before := step.Memory.Apply(t.exact.memory)
	t.exact.memory = before
	if t.other == nil && !step.Time.Before(t.since) && step.Early == 0 {
		t.other = &world{policy: t.policy, memory: before, gone: make(map[snapshot.Hostname]*removed)}
		t.sent = idsOf(before.UnderWay)
	}
	if t.other == nil {
		t.judgeWas(step, before)
		return nil
	}
	t.note(step)
	t.continueOther(step, before)
	boosts := t.boosts(step)
	var would judged
	var other sync.WaitGroup // the two have nothing in common that changes
	other.Go(func() { would = t.judgeOther(step, boosts) })
	was, same := t.judgeWas(step, before)
	other.Wait()
	if !same {
		t.result.Different++
	}
	t.was.add(&was)
	t.would.add(&would)
	return nil
}

// judgeWas judges by the policy in force. same reports whether that comes to what was recorded.
func (t *Trial) judgeWas(step *recording.Step, before enforce.Memory) (was judged, same bool) {
	was = t.exact.judge(step, step.Boosts)
	same = recording.DigestOf(&was.plan, was.events) == step.Digest
	if !step.DryRun {
		t.dry = nil
		return was, same
	}
	if t.dry == nil {
		t.dry = &world{policy: t.exact.policy, memory: before, gone: make(map[snapshot.Hostname]*removed)}
	}
	return t.dry.judge(step, step.Boosts), same
}

// continueOther has the other policy know what the controller knew besides what it judged.
func (t *Trial) continueOther(step *recording.Step, before enforce.Memory) {
	t.other.memory.UnderWay = slices.DeleteFunc(slices.Clone(before.UnderWay), func(r enforce.HostReport) bool { return !t.sent[r.Report.ID] })
	if step.Memory != nil && step.Memory.Whole && len(step.Memory.Set.Hosts) == 0 {
		t.result.Restarts++
		t.other.memory = before
	}
}

// judgeOther judges by the policy to try. The warnings of users begin again who had a boost.
func (t *Trial) judgeOther(step *recording.Step, boosts map[snapshot.Username]int) judged {
	if step.Early == 0 {
		before := t.other.share
		t.other.boosted(boosts)
		t.other.memory = t.other.share.Forget(before, t.other.memory)
	}
	return t.other.judge(step, boosts)
}

func idsOf(reports []enforce.HostReport) map[string]bool {
	ids := make(map[string]bool, len(reports))
	for i := range reports {
		ids[reports[i].Report.ID] = true
	}
	return ids
}

// boosts are those of the policy to try. Who is light isn't recorded, but who had a boost is: it is
// known if the policy in force had them under the same condition.
func (t *Trial) boosts(step *recording.Step) map[snapshot.Username]int {
	setting := t.policy.FairShare
	if !setting.On || setting.Value.Boost <= 0 {
		return nil
	}
	if had := t.exact.policy.FairShare; !had.On || had.Value.Boost <= 0 || had.Value.Free != setting.Value.Free {
		t.result.FairShare = true
		return nil
	}
	boosts := make(map[snapshot.Username]int, len(step.Boosts))
	for user := range step.Boosts {
		boosts[user] = setting.Value.Boost
	}
	return boosts
}

func (t *Trial) usePolicy(p *recording.Policy) error {
	switch {
	case p == nil:
		return fmt.Errorf("%w: no policy is recorded", recording.ErrInvalid)
	case p == t.known:
		return nil
	case t.known == nil || p.Digest != t.known.Digest:
		file, err := p.File()
		if err != nil {
			return err
		}
		t.exact.policy = file
		if t.dry != nil {
			t.dry.policy = file
		}
	}
	t.known = p
	return nil
}

// minGap is the shortest time between two full judgements that is a gap.
const minGap = 2 * time.Minute

// note notes what is not known.
func (t *Trial) note(step *recording.Step) {
	r := &t.result
	if r.Judgements++; step.DryRun {
		r.DryRun++
	}
	if n := len(r.Policies); n == 0 || r.Policies[n-1].Digest != step.Policy.Digest {
		r.Policies = append(r.Policies, step.Policy)
	}
	if r.From.IsZero() {
		r.From = step.Time
	}
	r.To = step.Time
	if step.Early > 0 {
		r.Early++
		return
	}
	because := ""
	for _, g := range step.Gaps {
		because = g.Because
	}
	passed := step.Time.Sub(t.last)
	if !t.last.IsZero() && (passed > max(minGap, 4*step.Header.Every) || passed < 0 || because != "") {
		r.Gaps = append(r.Gaps, recording.Gap{Since: t.last, Until: step.Time, Because: cmp.Or(because, "the controller did not run, or did not judge")})
	}
	for name := range t.lastSil {
		t.silent[name] += max(passed, 0)
	}
	t.last, t.lastSil = step.Time, nil
	for i := range step.Cluster.Hosts {
		h := &step.Cluster.Hosts[i]
		if h.Snapshot == nil {
			if t.lastSil == nil {
				t.lastSil = make(map[snapshot.Hostname]bool)
			}
			t.lastSil[h.Name] = true
			t.silent[h.Name] += 0
		}
		if !t.begun && t.policy.Settings(enforce.Query{Host: h.Name, Labels: h.Labels, At: step.Time}).Guard.Mode == guard.Enforce {
			r.Guard = true
		}
	}
	t.begun = true
}

// Result is what came of the judgements until now.
func (t *Trial) Result() Result {
	r := t.result
	r.Was, r.Would = t.was.counts(), t.would.counts()
	r.WasTotal, r.WouldTotal = t.was.total, t.would.total
	r.Silent = t.silent
	r.Begin, r.End = missingIn(t.would, t.was), missingIn(t.was, t.would)
	r.Left = t.was.left + t.would.left
	return r
}

func (t *tally) counts() map[Key]Counts {
	m := make(map[Key]Counts, len(t.rows))
	for k, c := range t.rows {
		m[k] = *c
	}
	return m
}

// missingIn are the cases of one tally that another one never had, or never acted on.
func missingIn(one, other *tally) []Case {
	var list []Case
	for _, c := range one.cases {
		if acted, found := other.ids[c.ID]; !found || !c.Acted.IsZero() && !acted {
			list = append(list, *c)
		}
	}
	return sorted(list)
}
