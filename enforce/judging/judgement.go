package judging

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
)

// Judgement is a call of Judge: its arguments, and the result so far.
type Judgement struct {
	Policy      enforce.Policy
	Fleet       enforce.Fleet // of the policy
	Before      enforce.Memory
	Now         time.Time
	Hosts       []*HostView                     // that answered, in the order of the cluster
	Missing     []snapshot.Hostname             // that didn't
	Cluster     []snapshot.Host                 // all, with labels
	ExemptHosts []bool                          // for each of Cluster
	ByName      map[snapshot.Hostname]*HostView // nil for hosts that didn't answer
	// Unanswered are hosts that have neither answered nor failed since this controller began.
	Unanswered map[snapshot.Hostname]bool
	advances   bool // a snapshot is the first of a new round
	// uses are those on the host that is being judged, useAt their positions, and Holders the processes that keep its
	// devices in use. They are reset for each host.
	uses    []currentUse
	useAt   map[enforce.UseKey]int
	Holders []Holder
	seen    map[snapshot.AttachmentKey]enforce.Seen // likewise; see since
	// The common arrays of the lists of environments: see Append.
	attachments []Attachment
	processes   []*snapshot.Process

	Next         enforce.Memory             // starts with the still valid part of Before
	enforce.Plan                            // the result so far
	Ask          map[snapshot.Hostname]bool // hosts to ask before acting
}

// New begins a judgement of a cluster at a time.
func New(policy enforce.Policy, cluster snapshot.Cluster, memory enforce.Memory, now time.Time) *Judgement {
	j := &Judgement{
		Policy: policy, Fleet: policy.Fleet(), Cluster: cluster.Hosts, Now: now,
		Before: memory, Next: memory.Next(now, len(cluster.Hosts)),
		Hosts: make([]*HostView, 0, len(cluster.Hosts)), ExemptHosts: make([]bool, len(cluster.Hosts)),
		Unanswered: make(map[snapshot.Hostname]bool), Ask: make(map[snapshot.Hostname]bool),
		ByName: make(map[snapshot.Hostname]*HostView, len(cluster.Hosts)), useAt: make(map[enforce.UseKey]int),
		seen: make(map[snapshot.AttachmentKey]enforce.Seen),
	}
	j.ExemptDevices = make(map[snapshot.Hostname][]snapshot.DeviceIndex)
	views := make([]HostView, 0, len(cluster.Hosts))
	for i := range cluster.Hosts {
		h := &cluster.Hosts[i]
		j.ByName[h.Name] = nil
		_, j.ExemptHosts[i] = policy.Exempt(enforce.Subject{Host: h.Name})
		switch {
		case j.ExemptHosts[i]: // its answer doesn't matter
		case h.Err == nil && h.Snapshot == nil:
			j.Unanswered[h.Name] = true
		case h.Err != nil:
			j.Missing = append(j.Missing, h.Name)
		default:
			views = append(views, HostView{j: j, Name: h.Name, Labels: h.Labels, Snapshot: h.Snapshot, Position: i})
			view := &views[len(views)-1]
			view.setTime(h, memory.Hosts[h.Name], now)
			view.Zone = h.Snapshot.Location()
			view.Settings = policy.Settings(enforce.Query{Host: h.Name, Labels: h.Labels, At: now})
			j.advances = j.advances || h.Round == 0 || h.Round > memory.Round
			j.Next.Round = max(j.Next.Round, h.Round)
			j.Hosts = append(j.Hosts, view)
			j.ByName[h.Name] = view
		}
	}
	if j.advances {
		j.Next.Tally = safety.Tally{}
	}
	j.Next.Tally = j.Next.Tally.Clone()
	j.keepExemptGPUs()
	j.keepSilent()
	j.markUnderWay()
	j.assignIdleDetached()
	assignTried(j, j.Next.Stuck)
	assignTried(j, j.Next.RetryAt)
	return j
}

// setTime sets when the host was asked, and how long it didn't answer before. A snapshot from before the end of an
// order is not fresh.
func (h *HostView) setTime(host *snapshot.Host, known enforce.KnownHost, now time.Time) {
	h.At, h.advances, h.LastLook = host.AskedAt, host.Round == 0 || host.Round != known.Round, known.Looked
	if h.At.IsZero() {
		h.At = now
	}
	if h.LastLook.IsZero() && known.Answered && known.Lost == "" {
		h.LastLook = h.j.Before.Time // of a memory of earlier versions
	}
	lost := cmp.Or(known.LostAt, h.At)
	h.silence, h.unasked = max(0, h.At.Sub(lost)), h.j.pause(known.Looked, lost)
	h.IsNew = host.AskedAt.IsZero() || host.IsNew
	h.Acted = !known.Acted.IsZero() && !h.At.After(known.Acted)
	from := h.At
	if h.IsNew {
		from = from.Add(host.Took)
	}
	h.Fresh = now.Sub(from) <= enforce.FreshFor && !h.Acted
}

// pause is how much longer than three intervals, and than a minute, nothing was looked at: the controller was off or
// its record full. What was there before may have ended in between.
func (j *Judgement) pause(last, next time.Time) time.Duration {
	if j.Fleet.Interval == 0 || last.IsZero() {
		return 0
	}
	return max(0, next.Sub(last)-max(time.Minute, 3*j.Fleet.Interval))
}

// markUnderWay adds orders to the hosts that still carry them out, or whose snapshots don't show the end yet.
func (j *Judgement) markUnderWay() {
	for i := range j.Before.JustEnded {
		o := &j.Before.JustEnded[i]
		h, inFleet := j.ByName[o.Host]
		if inFleet && (h == nil || h.Acted) {
			j.Next.JustEnded = append(j.Next.JustEnded, *o)
		}
		if h != nil && h.Acted {
			h.UnderWay.Add(&o.Order)
		}
	}
	for i := range j.Before.UnderWay {
		o := &j.Before.UnderWay[i]
		if h := j.ByName[o.Host]; h != nil {
			h.UnderWay.Orders++
			h.UnderWay.Add(&o.Order)
		}
	}
}

// Warning is the time of a warning, and at least one key that measures it. A key names something that is present
// without a break: a process; or a user, host and device. The key that is due first counts, so restarting a process
// doesn't reset the time.
type Warning struct {
	warn enforce.Warn
	keys []string
}

// NewWarning returns a warning with at least one key.
func NewWarning(warn enforce.Warn, keys ...string) Warning { return Warning{warn, keys} }

// CheckDue sets the times of a finding, and reports whether to act on it: one of its warnings was over when the host
// was asked for its snapshot, which is fresh. If one is over only now, or the snapshot is old, the finding is Deferred:
// the host is asked again first. h is nil for a finding about several hosts. The caller adds the finding afterwards.
func (j *Judgement) CheckDue(h *HostView, f *enforce.Finding, warnings ...Warning) (due bool) {
	over := false // at Now; due is for the time of the host's snapshot
	for i, c := range warnings {
		p := firstDue(c, func(key string) enforce.Presence { return j.CountPresence(h, f, c.warn, key) })
		isDue, at := p.Due(c.warn, j.At(h))
		isOver, _ := p.Due(c.warn, j.Now)
		due, over = due || isDue, over || isOver
		if i == 0 {
			f.Since, f.Cycles, f.Due = p.Since, p.Cycles, at
		} else if at.After(j.Now) && at.Before(f.Due) {
			f.Due = at
		}
	}
	f.Deferred = over && (!due || h != nil && !h.Fresh)
	if due = due && !f.Deferred; due {
		f.Due = time.Time{}
	}
	f.Pending = !due
	return due
}

func firstDue(c Warning, of func(key string) enforce.Presence) (first enforce.Presence) {
	for i, key := range c.keys {
		p := of(key)
		_, at := p.Due(c.warn, time.Time{})
		if _, due := first.Due(c.warn, time.Time{}); i == 0 || at.Before(due) {
			first = p
		}
	}
	return first
}

// At is when a host was asked for its snapshot; now for nil.
func (j *Judgement) At(h *HostView) time.Time {
	if h == nil {
		return j.Now
	}
	return h.At
}

// DueAt is when a finding with these keys is due at the earliest; zero for now. Rules don't warn of what ends anyway
// before that.
func (j *Judgement) DueAt(h *HostView, warn enforce.Warn, keys ...string) time.Time {
	p := firstDue(NewWarning(warn, keys...), func(key string) enforce.Presence { return j.Presence(h, key) })
	due, at := p.Due(warn, j.At(h))
	if due {
		return time.Time{}
	}
	return Later(at, j.Now)
}

// Later is the later of two times.
func Later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// CountPresence notes that a key is present, and returns its presence.
func (j *Judgement) CountPresence(h *HostView, f *enforce.Finding, warn enforce.Warn, key string) enforce.Presence {
	p := j.Presence(h, key)
	p.Warn, p.Hosts = warn.OrLonger(p.Warn), f.CountedOn
	j.Next.Present[key] = p
	return p
}

// Presence returns the presence of a key in this judgement, without noting it.
func (j *Judgement) Presence(h *HostView, key string) enforce.Presence {
	if p, counted := j.Next.Present[key]; counted {
		return p
	}
	p, advances := j.remembered(h, key)
	if p.IsOver(j.At(h)) {
		p = enforce.Presence{}
	}
	if h != nil {
		p.Host = h.Name
	}
	if p.Since.IsZero() {
		p.Since = j.At(h)
	}
	if advances { // else it counts from the next tick on
		p.Cycles++
	}
	p.Gone, p.Missed = time.Time{}, 0
	return p
}

// remembered returns a presence of the last judgement, and whether a new round began since. It adds the time for which
// the host didn't answer or wasn't asked to Since and Gone: for several hosts a pause of the controller and, while it
// is gone, the longest silence of a host.
func (j *Judgement) remembered(h *HostView, key string) (p enforce.Presence, advances bool) {
	p = j.Before.Present[key]
	silence, advances := j.pause(j.Before.Time, j.Now), j.advances
	if h != nil {
		silence, advances = h.silence+h.unasked, h.advances
	}
	for _, name := range p.Hosts {
		if on := j.ByName[name]; on != nil && !p.Gone.IsZero() {
			silence = max(silence, on.silence)
		}
	}
	if !p.Gone.IsZero() { // it was already moved by a silence of hosts at the same time, or in a pause
		silence = max(0, min(silence, j.At(h).Sub(p.Gone)))
	}
	for _, at := range []*time.Time{&p.Since, &p.Gone} {
		if !at.IsZero() {
			*at = at.Add(silence)
		}
	}
	return p, advances
}

// isOfProcess reports whether a key is about one process. There may be very many, so it is dropped with the process;
// the user's key keeps the time.
func isOfProcess(key string) bool {
	rule, rest, _ := strings.Cut(key, "/")
	parts := strings.Split(rest, "/")
	if len(parts) != 3 || rule != "process" && !enforce.Rule(rule).IsMovable() {
		return false
	}
	_, err := strconv.ParseUint(parts[1]+parts[2], 10, 64)
	return err == nil
}

// KeepAbsent keeps presences in gaps of less than an eighth of their warning, and on hosts that don't answer.
func (j *Judgement) KeepAbsent() {
	silent := func(name snapshot.Hostname) bool {
		h, inFleet := j.ByName[name]
		return inFleet && h == nil
	}
	for key, p := range j.Before.Present {
		h := j.ByName[p.Host]
		if _, counted := j.Next.Present[key]; counted || h == nil && p.Host != "" && !silent(p.Host) {
			continue
		}
		if silent(p.Host) {
			j.Next.Present[key] = p
			continue
		}
		if isOfProcess(key) {
			continue
		}
		p, advances := j.remembered(h, key)
		hidden := slices.ContainsFunc(p.Hosts, silent)
		if p.Gone.IsZero() {
			p.Gone = j.At(h)
		}
		if advances && !hidden {
			p.Missed++
		}
		if p.AskedAgain = (time.Time{}); hidden || !p.IsOver(j.At(h)) {
			j.Next.Present[key] = p
		}
	}
}

// Add adds a finding.
func (j *Judgement) Add(f enforce.Finding) { j.Findings = append(j.Findings, f) }

// maxNotes limits the notes about a host, which may make things up.
const maxNotes = 256

// Note adds a note about something that could not be judged.
func (j *Judgement) Note(h *HostView, format string, args ...any) {
	switch h.notes++; {
	case h.notes <= maxNotes:
		j.Notes = append(j.Notes, enforce.Note{Host: h.Name, Text: fmt.Sprintf(format, args...)})
	case h.notes == maxNotes+1:
		j.Notes = append(j.Notes, enforce.Note{Host: h.Name, Text: "and there is more that could not be judged"})
	}
}

// End adds a process to a finding and, if due, to the host's order. One that can't be ended is listed as stuck instead.
func (j *Judgement) End(f *enforce.Finding, due bool, h *HostView, p *snapshot.Process) {
	ref := enforce.ProcessRef{Host: h.Name, PID: p.PID}
	if h.UnderWay.Ends(p) {
		f.UnderWay++
		return
	}
	if reason, stuck := h.stuckReason(p); stuck {
		f.Stuck = append(f.Stuck, enforce.StuckProcess{ProcessRef: ref, Reason: reason})
		return
	}
	f.Terminate = append(f.Terminate, ref)
	switch {
	case due && f.Rule == enforce.RuleEnvDevices:
		h.Terminate(p, f.ID, f.Devices...)
	case due:
		h.Terminate(p, f.ID)
	case f.BlockedBy == "":
		h.ExpectEnd(p.PID, f.Due)
	}
	j.askFirst(f, h)
}

// askFirst has a host asked again for a deferred finding, unless an order ended there after the snapshot: a signalled
// process may be saving its work, and the host reports its end, or the next tick shows it.
func (j *Judgement) askFirst(f *enforce.Finding, h *HostView) {
	if f.Deferred && f.Host == h.Name && !h.Acted { // a single machine has no name
		j.Ask[h.Name] = true
	}
}

// LoseDevice adds a detachment to a finding and, if due, to the host's order.
func (j *Judgement) LoseDevice(f *enforce.Finding, due bool, h *HostView, env *EnvView, index snapshot.DeviceIndex) {
	if h.UnderWay.Detaches(index, env.Env.EID) {
		f.UnderWay++
		return
	}
	f.Detach = append(f.Detach, enforce.DeviceRef{Host: h.Name, Index: index, EID: env.Env.EID})
	switch {
	case due:
		h.Detach(index, env.Env, h.use(env, index) == Unused, f.ID)
	case f.BlockedBy == "":
		h.ExpectDetach(index, env.Env.EID, f.Due)
	}
	j.askFirst(f, h)
}
