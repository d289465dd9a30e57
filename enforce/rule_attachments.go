package enforce

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce/contents"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// RuleIdle is about attached devices that are not used.
const RuleIdle Rule = "idle"

const adviceIdle = "Your processes stay until somebody else is given it, or until they compute there: then they end " +
	"%s. Attach it again before that: genv attach."

var idleRule = rule{
	Setting: Setting{strictyaml.NewOptional(string(RuleIdle),
		func(s *Settings) **Idle { return &s.Idle }, "{after: 2h, below: 5%}", readIdle, Idle.String), ByHost | ByUser},
	advice: fmt.Sprintf(adviceIdle, "after another warning"),
	line: func(f Finding) string {
		return fmt.Sprintf("Environment %s has not used GPU %s for %s, and %s are allowed",
			f.EID, text.JoinIndices(f.Devices), text.ShortDuration(f.For), text.ShortDuration(f.Limit))
	},
	host: (*judgement).idle,
}

// Idle says when an attached device counts as idle.
type Idle struct {
	// After is for how long nothing must have used it, without a break.
	After time.Duration
	// Below is the utilization in per cent under which a device counts as idle
	// although processes use it; 0 for only devices without a process.
	Below int
	// Warn is the warning of its findings; nil for that of all rules.
	Warn *Warn
}

func readIdle(n *strictyaml.Node) Idle {
	var idle Idle
	hasAfter := false
	n.Map(strictyaml.Keys{
		"after": func(n *strictyaml.Node) { hasAfter, idle.After = true, n.Duration(time.Minute, year) },
		"below": func(n *strictyaml.Node) { idle.Below = readPercent(n) },
		"warn":  func(n *strictyaml.Node) { warn := readWarn(n); idle.Warn = &warn },
	})
	if n.IsMap() && !hasAfter {
		n.Failf("idle: the time is missing; write it as {after: 2h}")
	}
	return idle
}

func readPercent(n *strictyaml.Node) int {
	text := n.Scalar()
	p, err := strconv.Atoi(strings.TrimSuffix(text, "%"))
	if err != nil || p < 0 || p > 100 {
		n.Failf("%q is not a percentage; write it as 5%%", text)
		return 0
	}
	return p
}

// String is the setting as it is written in a file.
func (i Idle) String() string {
	s := "after: " + text.FormatDuration(i.After)
	if i.Below > 0 {
		s += fmt.Sprintf(", below: %d%%", i.Below)
	}
	if i.Warn != nil {
		s += fmt.Sprintf(", warn: %s", i.Warn)
	}
	return "{" + s + "}"
}

// idleKey names a person's use of a device for the idle rule. It stays the same when the device is detached and
// attached again, and in another environment, so that this doesn't reset the idle time.
func idleKey(h *hostView, env *envView, a contents.Attachment) string {
	person := string(env.env.Username)
	if person == "" {
		person = "/" + string(env.env.EID)
	}
	return string(h.name) + "/" + person + "/" + a.Device.Key()
}

// idle detaches what was idle for long enough. It ends no process: see release.
func (j *judgement) idle(h *hostView) {
	j.watchIdle(h)
	for _, env := range h.inOrder {
		if env.settings.Idle == nil {
			continue
		}
		for _, a := range env.Attachments {
			since, idle := j.next.Idle[idleKey(h, env, a)]
			if lasted := h.at.Sub(since); idle && lasted >= env.settings.Idle.After {
				j.detachOld(h, env, a, Finding{Rule: RuleIdle, For: lasted, Limit: env.settings.Idle.After})
			}
		}
	}
}

// watchIdle remembers since when attachments are idle that are idle now, in all environments of a person.
func (j *judgement) watchIdle(h *hostView) {
	used := make(map[string]bool)
	for _, env := range h.inOrder {
		rule := env.settings.Idle
		if rule == nil {
			continue
		}
		for _, a := range env.Attachments {
			index := a.Device.Index
			unused := !a.Device.ProcessesUnknown && h.use(env, index) == contents.Unused
			key := idleKey(h, env, a)
			if h.sparesUse(env, index) || !unused && !a.Device.ComputesLess(rule.Below) {
				used[key] = true
				continue
			}
			j.rememberIdle(h, key, rule.After)
		}
	}
	for key := range used {
		delete(j.next.Idle, key)
	}
}

// looksPerIdleTime is how often idleness must have been observed, at least, within
// the time that the rule allows: a device that was idle before and after a night in
// which the controller didn't run was not seen idle all night.
const looksPerIdleTime = 4

func (j *judgement) rememberIdle(h *hostView, key string, allowed time.Duration) {
	since, known := j.before.Idle[key]
	if !known || h.at.Sub(j.lastLook(h)) > allowed/looksPerIdleTime {
		since = h.at
	}
	j.next.Idle[key] = since
}

// RuleMaxDuration is about devices that have been attached for too long.
const RuleMaxDuration Rule = "max-duration"

var maxDurationRule = rule{
	Setting: Setting{strictyaml.NewDuration(string(RuleMaxDuration),
		func(s *Settings) *time.Duration { return &s.MaxDuration }, "7d", time.Minute, year), ByHost | ByUser},
	advice: "Save your work: what goes on using the GPU may be ended. Attach it again afterwards, if it is free: " +
		"genv attach.",
	line: func(f Finding) string {
		return fmt.Sprintf("Environment %s is attached to device %s for %s, and %s are allowed",
			f.EID, text.JoinIndices(f.Devices), text.ShortDuration(f.For), text.ShortDuration(f.Limit))
	},
	host: (*judgement).maxDuration,
}

// maxDuration detaches what was attached too long ago, by the looks of the host's root.
// Processes that go on using the device are then for env-devices.
func (j *judgement) maxDuration(h *hostView) {
	for _, env := range h.inOrder {
		limit := env.settings.MaxDuration
		if limit <= 0 {
			continue
		}
		for _, a := range env.Attachments {
			if lasted := h.at.Sub(j.since(h, a.Device.Key(), env.env.EID, a.Since)); lasted > limit &&
				!h.sparesUse(env, a.Device.Index) {
				j.detachOld(h, env, a, Finding{Rule: RuleMaxDuration, For: lasted, Limit: limit})
			}
		}
	}
}

func (j *judgement) detachOld(h *hostView, env *envView, a contents.Attachment, f Finding) {
	f.ID = string(f.Rule) + "/" + string(h.name) + "/" + string(env.env.EID) + "/" + a.Device.Key() + "/" + a.Time.ISO()
	f.Host, f.EID, f.User, f.UID = h.name, env.env.EID, env.env.Username, env.uid()
	f.Devices, f.Instances = append(f.Devices, a.Device.Index), a.Instances
	f.Warn = env.settings.warnOf(f.Rule)
	due := j.checkDue(h, &f, clock{f.Warn, []string{string(f.Rule) + "/" + idleKey(h, env, a)}})
	j.loseDevice(&f, due, h, env, a.Device.Index)
	if due && f.Rule == RuleIdle {
		h.release(a.Device, env)
	}
	j.add(f)
}
