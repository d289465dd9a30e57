package enforce

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce/holdings"
	"github.com/seed-3119e985/genv/snapshot"
)

// caps takes devices from users who are over a cap: never more than the excess,
// and those first that cost the user least. Package holdings decides.
func (j *judgement) caps() {
	all := j.allocations()
	j.holdings = all.Shard
	decision, excesses := j.decisionFor(all)
	if decision == nil {
		j.keepCaps(func(snapshot.Username, holdings.Cap) bool { return true })
		if len(all.inOrder) > 0 {
			j.notes = append(j.notes, Note{Text: "caps per user are not applied: there is no recent decision for all shards"})
		}
		return
	}
	remaining := all.Remaining()
	j.noteUncounted(all, remaining)
	for i := range decision.Over {
		over := &decision.Over[i]
		if j.shard == nil {
			j.overCap(all, over, &excesses[i], decision.Missing)
		} else if excess, still := j.stillOver(all, remaining, over); still && j.overCap(all, over, &excess, decision.Missing) {
			remaining.Take(&excess)
		}
	}
	if len(all.inOrder) > 0 && decision.Missing > 0 { // without their number, so that it is the same note while some are missing
		j.notes = append(j.notes, Note{Text: "some hosts did not answer: devices there don't count toward per-user caps"})
	}
}

// decisionFor is what is decided about the caps: where one controller judges all hosts, by
// what they show, with the excess of each; otherwise what was decided for its shard, nil for nothing.
func (j *judgement) decisionFor(all *allocations) (*holdings.Decision, []holdings.Excess) {
	if j.shard != nil {
		return j.shard.Decision, nil
	}
	decision, excesses := holdings.DecideAlone(all.Shard, CapRules(j.policy, j.now))
	return &decision, excesses
}

// CapRules are the rules of a policy at a moment, for deciding about the caps.
func CapRules(policy Policy, now time.Time) holdings.Rules {
	limits := func(user snapshot.Username) (l holdings.Limits) {
		if s := capSettings(policy, user, now); s != nil {
			l = s.caps()
		}
		return l
	}
	return holdings.Rules{Limits: limits, Pause: policy.Fleet().PauseCaps}
}

// capSettings are the settings of a user who has caps; nil for others.
func capSettings(policy Policy, user snapshot.Username, now time.Time) *Settings {
	if _, exempt := policy.Exempt(Subject{User: user}); exempt {
		return nil
	}
	s := policy.Settings(Query{User: user, At: now})
	if s.MaxDevices == nil && s.MaxMemory == nil && s.MaxEnvs == nil {
		return nil
	}
	return s
}

func (s *Settings) caps() holdings.Limits {
	return holdings.Limits{Envs: s.MaxEnvs, Devices: s.MaxDevices, Memory: s.MaxMemory}
}

// stillOver applies a decision to the current snapshots. still is false if the user is no longer over
// the cap here, or another shard reports the finding.
func (j *judgement) stillOver(all *allocations, remaining *holdings.Remaining, over *holdings.Over) (excess holdings.Excess, still bool) {
	settings := all.of(over.User).settings
	if settings == nil {
		return excess, false
	}
	if limit, capped := settings.caps().Of(over.Cap); !capped || limit != over.Limit {
		j.keepCaps(func(user snapshot.Username, c holdings.Cap) bool { return user == over.User && c == over.Cap })
		return excess, false // the judge used another policy
	}
	excess, still = remaining.Excess(over)
	if still && len(over.Takes) == 0 && !over.Shown {
		j.countPresence(capID(capRules[over.Cap], over.User))
		return excess, false // another shard reports it
	}
	return excess, still
}

// overCap adds a finding about a user who loses something, and reports whether it is due.
func (j *judgement) overCap(all *allocations, over *holdings.Over, excess *holdings.Excess, missing int) (due bool) {
	rule := capRules[over.Cap]
	f := Finding{Rule: rule, User: over.User, ID: capID(rule, over.User), HostsMissing: missing}
	f.Count = &CountExcess{Used: excess.Used.Count, Limit: int(over.Limit), Hosts: excess.Used.Hosts}
	if over.Cap == holdings.Memory {
		f.Count.Limit, f.Memory = 0, &MemoryExcess{UsedBytes: excess.Used.Bytes, CapacityBytes: over.Limit}
	}
	due = j.capDue(&f, over, all.of(over.User).settings.Warn)
	all.lose(&f, due, excess)
	j.add(f)
	return due
}

// capDue is checkDue for a cap, which knows of hosts that did not answer. Their
// devices do not count, so the user may be over by more, never by less; what
// costs least to lose may be there, though, so the policy can have caps wait.
func (j *judgement) capDue(f *Finding, over *holdings.Over, warn Warn) (due bool) {
	due = j.checkDue(f, warn, f.ID)
	switch {
	case j.fleet.PauseCaps && f.HostsMissing > 0:
		f.Waits = fmt.Sprintf("%d of the hosts did not answer, and the policy says \"unreachable: hold\"", f.HostsMissing)
	case over.Settling:
		f.Waits = "not all shards have looked at their hosts since, or an earlier decision may still be taking something from this user"
	case due && !over.Due:
		f.Waits = "the warning period is not over on all hosts where the user would lose something"
	default:
		return due
	}
	f.Pending = true
	return false
}

// lose notes what a user loses.
func (all *allocations) lose(f *Finding, due bool, excess *holdings.Excess) {
	j, dealt := all.j, all.dealt
	clear(dealt)
	end := func(h *hostView, process int) { // those that are dealt with already are not named again
		if !dealt[process] {
			dealt[process] = true
			j.end(f, due, h, all.processes[process])
		}
	}
	for _, env := range excess.Envs {
		h := all.hosts[env.Host]
		for _, loss := range env.Loses {
			j.loseDevice(f, due, h, h.envs.Get(env.EID), loss.Device)
			for _, p := range loss.Processes {
				end(h, p)
			}
		}
	}
	for _, d := range excess.Devices {
		h := all.hosts[d.Host]
		for _, env := range d.Envs {
			j.loseDevice(f, due, h, h.envs.Get(env.EID), d.Index)
		}
		for _, use := range d.Processes {
			end(h, use.Process)
		}
	}
}

// capRules are the rules of the caps.
var capRules = [...]Rule{holdings.Envs: RuleMaxEnvsPerUser, holdings.Devices: RuleMaxDevicesPerUser, holdings.Memory: RuleMaxMemoryPerUser}

func capID(rule Rule, user snapshot.Username) string { return fmt.Sprintf("%s/%s", rule, user) }

// dueCaps are the caps of which the warning would be over if the user were found over them now.
func (j *judgement) dueCaps(u *allocation) (caps holdings.Caps) {
	for c, rule := range capRules {
		if _, capped := u.settings.caps().Of(holdings.Cap(c)); !capped {
			continue
		}
		if due, _ := j.presence(capID(rule, u.Name)).due(u.settings.Warn, j.now); due {
			caps = caps.With(holdings.Cap(c))
		}
	}
	return caps
}

// keepCaps carries over what is known of findings about caps that were not decided in this cycle:
// their start times, without counting the cycle, and that users were notified.
func (j *judgement) keepCaps(undecided func(snapshot.Username, holdings.Cap) bool) {
	kept := func(id string) bool {
		for c, rule := range capRules {
			if user, found := strings.CutPrefix(id, string(rule)+"/"); found && undecided(snapshot.Username(user), holdings.Cap(c)) {
				return true
			}
		}
		return false
	}
	for id, p := range j.before.Present {
		if kept(id) {
			j.next.Present[id] = p
		}
	}
	for id, known := range j.before.Findings {
		if kept(id) {
			j.next.Findings[id] = known
		}
	}
}

// noteUncounted says which devices memory caps don't count.
func (j *judgement) noteUncounted(all *allocations, remaining *holdings.Remaining) {
	for _, u := range all.inOrder {
		if u.settings.MaxMemory == nil {
			continue
		}
		for _, d := range remaining.WithUnknownMemory(u.Name) {
			j.note(all.hosts[d.Host], "the memory of device %d is unknown, so memory caps don't count it", d.Index)
		}
	}
}
