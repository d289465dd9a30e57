package enforce

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
)

// Memory is what Judge knows of earlier judgements, on disk as JSON. Judge takes one and returns the next, and changes
// neither. With the zero Memory all times start again: actions come later, never sooner.
type Memory struct {
	Time  time.Time `json:"time"`            // of the last judgement
	Round int       `json:"round,omitempty"` // the last one with a judged snapshot
	// Findings are those with events, by ID.
	Findings map[string]KnownFinding `json:"findings,omitempty"`
	// Present is since when things are present, by the keys of judging.CheckDue.
	Present map[string]Presence `json:"present,omitempty"`
	Uses    Uses                `json:"uses,omitempty"` // since when people have their GPUs
	// IdleDetached are devices detached for being idle while processes use them: true until they compute again.
	IdleDetached map[snapshot.AttachmentKey]bool `json:"released,omitempty"`
	// Hours count for caps of GPU hours, by ID. They are kept in a table of their own.
	Hours map[string]Hours `json:"hours,omitempty"`
	// TakenFor are GPUs recently taken for waiting commands, by account and ID.
	TakenFor map[string]Taken `json:"taken_for,omitempty"`
	// ExemptGPUs are the GPUs that the policy exempts by index.
	ExemptGPUs map[snapshot.Hostname][]ExemptGPU `json:"exempt_gpus,omitempty"`
	// Stuck are processes that can't be ended, with the reason. RetryAt is when a process may get another SIGTERM: it
	// got one, or may have, or its host refused to end it.
	Stuck   map[snapshot.ProcessKey]string    `json:"stuck,omitempty"`
	RetryAt map[snapshot.ProcessKey]time.Time `json:"left_alone,omitempty"`
	Seen    SeenOn                            `json:"seen,omitempty"`
	Hosts   map[snapshot.Hostname]KnownHost   `json:"hosts,omitempty"` // of the last judgement

	Notes    map[Note]bool  `json:"-"` // of the last judgement
	UnderWay []order.OfHost `json:"-"` // orders that still run; what they end or detach gets no second order
	// JustEnded are orders that ended after their hosts were last asked. The snapshot still shows what they ended, so
	// that gets no second order either.
	JustEnded []order.OfHost `json:"-"`
	// Resumed: it was read from disk, so the next events repeat what was known before.
	Resumed bool `json:"-"`
	// Tally counts actions and messages since the last tick: limits apply to their sum.
	Tally safety.Tally `json:"-"`
}

// At returns the memory with times by the wall clock of now, but durations of the monotonic clock.
func (m Memory) At(now time.Time) Memory {
	return m.WithTimes(func(t time.Time) time.Time { return now.Add(-now.Sub(t)) })
}

// WithTimes returns the memory with each time replaced, except periods of hours.
func (m Memory) WithTimes(at func(time.Time) time.Time) Memory {
	m.Time, m.RetryAt = at(m.Time), mapped(m.RetryAt, at)
	m.TakenFor = mapped(m.TakenFor, func(t Taken) Taken { return Taken{at(t.At), t.Host, t.GPUs} })
	known := func(t time.Time) time.Time {
		if t.IsZero() {
			return t
		}
		return at(t)
	}
	m.Present = mapped(m.Present, func(p Presence) Presence {
		p.Since, p.Gone, p.AskedAgain = at(p.Since), known(p.Gone), known(p.AskedAgain)
		return p
	})
	m.Uses = mapped(m.Uses, func(uses map[UseKey]Use) map[UseKey]Use {
		return mapped(uses, func(u Use) Use {
			return Use{known(u.Attached), known(u.Detached), known(u.Idle), known(u.LowPower), known(u.Gone), u.Break}
		})
	})
	m.Seen = mapped(m.Seen, func(seen map[snapshot.AttachmentKey]Seen) map[snapshot.AttachmentKey]Seen {
		return mapped(seen, func(s Seen) Seen { return Seen{s.Written, at(s.Since)} })
	})
	m.Hosts = mapped(m.Hosts, func(h KnownHost) KnownHost {
		h.Looked, h.Acted, h.LostAt = known(h.Looked), known(h.Acted), known(h.LostAt)
		return h
	})
	return m
}

// KnownFinding is the last event about a finding.
type KnownFinding struct {
	Host     snapshot.Hostname `json:"host,omitempty"`
	Decision Decision          `json:"decision,omitempty"`
	Notified NotifiedOf        `json:"notified,omitempty"`
}

// NotifiedOf is what the users of a finding were last notified of.
type NotifiedOf int

const (
	NotifiedOfWarning NotifiedOf = iota + 1
	NotifiedOfAction
)

// KnownHost is what is known of a host.
type KnownHost struct {
	Answered bool      `json:"answered,omitempty"` // ever
	Lost     string    `json:"lost,omitempty"`     // the kind of its error; empty if it answers
	LostAt   time.Time `json:"lost_at,omitzero"`   // since when; zero if it answers
	// Looked is when the host was asked for the last judged snapshot, and Round its round.
	Looked time.Time `json:"looked,omitzero"`
	Round  int       `json:"round,omitempty"`
	// GPUs counts the working GPUs that aren't exempt, by model; nil for a host never seen.
	GPUs map[string]int `json:"gpus,omitempty"`
	// Acted is when the last outcome of an order came. Snapshots asked for before are out of date.
	Acted time.Time `json:"-"`
}

// Presence is since when something is there. A gap of less than an eighth of the warning is no break: with a warning of
// 8 hours, 50 minutes within a cap don't restart it.
type Presence struct {
	Since  time.Time `json:"since"`
	Cycles int       `json:"cycles"` // rounds in which it was there, including the last one
	Warn   Warn      `json:"warn,omitzero"`
	// Gone is the first look without it, and Missed counts the rounds without it; zero while it is there.
	Gone   time.Time `json:"gone,omitzero"`
	Missed int       `json:"missed,omitempty"`
	// Host is where it is; Hosts replaces it for several hosts.
	Host  snapshot.Hostname   `json:"host,omitempty"`
	Hosts []snapshot.Hostname `json:"on,omitempty"`
	// AskedAgain is since when hosts are asked once more before a cap acts; zero if they aren't.
	AskedAgain time.Time `json:"-"`
}

// Next begins the memory of the next judgement.
func (m Memory) Next(now time.Time, hosts int) Memory {
	takenFor := copyOf(m.TakenFor)
	maps.DeleteFunc(takenFor, func(_ string, t Taken) bool { return now.Sub(t.At) >= keepsTaken })
	return Memory{
		Time:         now,
		Findings:     make(map[string]KnownFinding, len(m.Findings)),
		Present:      make(map[string]Presence, len(m.Present)),
		Uses:         make(Uses, len(m.Uses)),
		IdleDetached: copyOf(m.IdleDetached),
		Stuck:        copyOf(m.Stuck),
		RetryAt:      copyOf(m.RetryAt),
		TakenFor:     takenFor,
		Hours:        copyOf(m.Hours), // also of caps that are temporarily not in the policy
		Seen:         make(SeenOn, len(m.Seen)),
		Hosts:        make(map[snapshot.Hostname]KnownHost, hosts),
		Notes:        make(map[Note]bool, len(m.Notes)),
		UnderWay:     m.UnderWay,
		Round:        m.Round,
		Tally:        m.Tally,
		ExemptGPUs:   make(map[snapshot.Hostname][]ExemptGPU, len(m.ExemptGPUs)),
	}
}

// IsOver reports whether it has been gone for at least an eighth of its warning.
func (p Presence) IsOver(now time.Time) bool {
	return !p.Gone.IsZero() && 8*now.Sub(p.Gone) >= p.Warn.For && 8*p.Missed >= p.Warn.Cycles
}

// Due reports whether it has lasted for the longer of warn and the announced warning, and when it has.
func (p Presence) Due(warn Warn, now time.Time) (bool, time.Time) {
	warn = warn.OrLonger(p.Warn)
	at := p.Since.Add(warn.For - warn.For/4*time.Duration(warn.Spread)/1024)
	return (warn.Cycles == 0 || p.Cycles > warn.Cycles) && !now.Before(at), at
}

// copyOf copies a map, and makes one from nil. mapped also converts the values.
func copyOf[K comparable, V any](m map[K]V) map[K]V {
	return mapped(m, func(v V) V { return v })
}

func mapped[K comparable, V any](m map[K]V, to func(V) V) map[K]V {
	c := make(map[K]V, len(m))
	for key, v := range m {
		c[key] = to(v)
	}
	return c
}

// Uses are those of each host. Judge never changes a host's map: it shares it with the next memory, or copies it.
type Uses map[snapshot.Hostname]map[UseKey]Use

// UseKey names a person's use of a GPU of a host, by the GPU's Key.
type UseKey struct {
	Person snapshot.Username
	Device string
}

// String is the key in Presence keys and JSON.
func (k UseKey) String() string { return string(k.Person) + "/" + k.Device }

// MarshalJSON writes one object, by host, person and GPU.
func (u Uses) MarshalJSON() ([]byte, error) {
	all := make(map[string]Use)
	for host, uses := range u {
		for key, use := range uses {
			all[string(host)+"/"+key.String()] = use
		}
	}
	return json.Marshal(all)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (u *Uses) UnmarshalJSON(data []byte) error {
	var all map[string]Use
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	*u = make(Uses)
	for key, use := range all {
		name, person, _ := strings.Cut(key, "/")
		at := max(strings.LastIndex(person, "/"), 0)
		host := snapshot.Hostname(name)
		if (*u)[host] == nil {
			(*u)[host] = make(map[UseKey]Use)
		}
		(*u)[host][UseKey{snapshot.Username(person[:at]), strings.TrimPrefix(person[at:], "/")}] = use
	}
	return nil
}

// Use is since when a person has a GPU, by any environments and processes. Times that don't apply are zero.
type Use struct {
	Attached time.Time `json:"attached,omitzero"`
	Detached time.Time `json:"detached,omitzero"`
	Idle     time.Time `json:"idle,omitzero"`      // unused, or computing little
	LowPower time.Time `json:"low_power,omitzero"` // unused, or drawing little power
	// Gone is since when the person lacks the GPU. For less than Break the other times continue.
	Gone  time.Time     `json:"gone,omitzero"`
	Break time.Duration `json:"break_ns,omitempty"`
}

// IdleFor is how long the GPU has been idle; negative if it isn't.
func (u Use) IdleFor(at time.Time) time.Duration {
	lasted := time.Duration(-1)
	for _, since := range []time.Time{u.Idle, u.LowPower} {
		if !since.IsZero() {
			lasted = max(lasted, at.Sub(since))
		}
	}
	return lasted
}

// SeenOn is since when attachments and environments count. As with Uses, a host's map never changes.
type SeenOn map[snapshot.Hostname]map[snapshot.AttachmentKey]Seen

// MarshalJSON writes one object. Its keys contain the hosts.
func (s SeenOn) MarshalJSON() ([]byte, error) {
	all := make(map[snapshot.AttachmentKey]Seen)
	for _, seen := range s {
		maps.Copy(all, seen)
	}
	return json.Marshal(all)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (s *SeenOn) UnmarshalJSON(data []byte) error {
	var all map[snapshot.AttachmentKey]Seen
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	*s = make(SeenOn)
	for key, seen := range all {
		if (*s)[key.Host] == nil {
			(*s)[key.Host] = make(map[snapshot.AttachmentKey]Seen)
		}
		(*s)[key.Host][key] = seen
	}
	return nil
}

// Seen is since when an attachment or environment counts on a host that doesn't report that, such as 1.4.3.
type Seen struct {
	Written snapshot.Date `json:"written"`
	Since   time.Time     `json:"since"`
}

// Hours is for how long in a period each person had GPUs of a cap of GPU hours.
type Hours struct {
	Period  time.Time                     `json:"period"` // its start
	Seconds map[snapshot.Username]float64 `json:"seconds"`
	Unread  bool                          `json:"-"` // earlier counts aren't read yet, so all are unknown
}

// Taken are GPUs that were taken from others for a wait, and are kept for it.
type Taken struct {
	At   time.Time              `json:"at"`
	Host snapshot.Hostname      `json:"host,omitempty"`
	GPUs []snapshot.DeviceIndex `json:"gpus"`
}

// keepsTaken is for how long nothing more is taken for a wait: the GPUs become free, and stay reserved for a minute.
const keepsTaken = 2 * time.Minute

// ExemptGPU is a GPU that a policy exempts by index. An index can move: the entry means the GPU that had it at the
// first reliable look after the entry appeared.
type ExemptGPU struct {
	Index snapshot.DeviceIndex `json:"index"`
	Entry string               `json:"entry"` // as written in the policy
	UUID  snapshot.GPUUUID     `json:"uuid,omitempty"`
}

// Learn returns the memory with the outcomes of an order that has ended. A process that survived SIGKILL hangs in the
// kernel, and isn't tried again. One that survived SIGTERM may be saving its work: like one that its host refused to
// end, it is tried again after retryAfter. For an unknown outcome, the note of Begin stays. Nothing else is done on the
// host before a new snapshot.
func (m Memory) Learn(sent order.OfHost, outcomes []order.Outcome, now time.Time) Memory {
	m.Hosts = copyOf(m.Hosts)
	host := m.Hosts[sent.Host]
	host.Acted = now
	m.Hosts[sent.Host] = host
	start := make(map[snapshot.PID]snapshot.StartTime, len(sent.Order.Terminate))
	for i := range sent.Order.Terminate {
		p := &sent.Order.Terminate[i].Process
		start[p.PID] = p.Start
	}
	isSent := func(o order.OfHost) bool { return o.Order.ID == sent.Order.ID }
	isLeft := func(o order.Outcome) bool { return !o.Status.IsOver() } // what is left is found again
	if at := slices.IndexFunc(m.UnderWay, isSent); at >= 0 && !slices.ContainsFunc(outcomes, isLeft) {
		m.JustEnded = append(slices.Clone(m.JustEnded), m.UnderWay[at])
	}
	m.UnderWay = slices.DeleteFunc(slices.Clone(m.UnderWay), isSent)
	m.Stuck, m.RetryAt = copyOf(m.Stuck), copyOf(m.RetryAt)
	for _, o := range outcomes {
		p := snapshot.ProcessKey{Host: sent.Host, PID: o.PID, Start: start[o.PID]}
		if p.PID == 0 || p.Start == 0 || o.Status == order.StatusUnknown {
			continue
		}
		delete(m.RetryAt, p)
		delete(m.Stuck, p)
		refused, survived := o.Status == order.StatusRefused, o.Status == order.StatusSurvived
		if refused || survived && sent.Order.Kill {
			m.Stuck[p] = o.Reason
		}
		if refused || survived && !sent.Order.Kill {
			m.RetryAt[p] = now.Add(retryAfter)
		}
	}
	return m
}

// Begin returns the memory with an order that is about to be sent. No process of it gets another order until its grace
// is over: programs often end at once on a second SIGTERM, even while they save their work, and the connection or the
// controller may die before the outcome comes.
func (m Memory) Begin(o order.OfHost, now time.Time) Memory {
	m.UnderWay = append(slices.Clone(m.UnderWay), o)
	m.RetryAt = copyOf(m.RetryAt)
	until := now.Add(o.Order.Steps()[0].Wait)
	for i := range o.Order.Terminate {
		if p := &o.Order.Terminate[i].Process; p.Start != 0 {
			m.RetryAt[snapshot.ProcessKey{Host: o.Host, PID: p.PID, Start: p.Start}] = until
		}
	}
	return m
}

// WarnAgain returns the memory with users of these findings counting as not warned, unless notified of an action.
func (m Memory) WarnAgain(ids []string) Memory {
	if len(ids) == 0 {
		return m
	}
	m.Findings = copyOf(m.Findings)
	for _, id := range ids {
		if known, ok := m.Findings[id]; ok && known.Notified == NotifiedOfWarning {
			known.Notified = 0
			m.Findings[id] = known
		}
	}
	return m
}

// retryAfter is when a process is tried again that survived SIGTERM, or that its host refused to end. Outcomes come
// shortly after a tick: a full minute would just miss the tick one minute later.
const retryAfter = time.Minute - 500*time.Millisecond
