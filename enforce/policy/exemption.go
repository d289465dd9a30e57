package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// The limits of an exemption.
const (
	MaxReason     = 200 // characters
	MaxExemption  = 30 * 24 * time.Hour
	MaxExemptions = 1000 // at a time
	maxName       = 256  // bytes of a user, host or author
	maxLead       = 365 * 24 * time.Hour
)

// Exemption exempts somebody from rules for a time.
type Exemption struct {
	Who
	Reason  string    `json:"reason"`
	By      string    `json:"by"` // its author
	Created time.Time `json:"created"`
	// From is when it begins; missing for at once.
	From  time.Time `json:"from,omitzero"`
	Until time.Time `json:"until"`
}

// Who is exempt: a user, everywhere or on a host; a host; or a GPU of a host. All but a GPU may be limited to a rule.
type Who struct {
	// User is a name as hosts report it, or "uid 1004" for a user without one.
	User   snapshot.Username     `json:"user,omitempty"`
	Host   snapshot.Hostname     `json:"host,omitempty"`
	Device *snapshot.DeviceIndex `json:"device,omitempty"`
	// UUID is the GPU's, which the exemption follows; missing until the host reports it.
	UUID snapshot.GPUUUID `json:"uuid,omitempty"`
	Rule enforce.Rule     `json:"rule,omitempty"` // missing for all rules
}

// Same reports whether user, host, device and rule are the same.
func (w *Who) Same(other *Who) bool {
	device := w.Device == nil && other.Device == nil || w.Device != nil && other.Device != nil &&
		w.IsOf(*other.Device, other.UUID)
	return device && w.User == other.User && w.Host == other.Host && w.Rule == other.Rule
}

// IsOf reports whether Device has an index and a UUID, which may be empty.
func (w *Who) IsOf(index snapshot.DeviceIndex, uuid snapshot.GPUUUID) bool {
	return snapshot.SameGPU(*w.Device, w.UUID, index, uuid)
}

// String is such as "user bob on host gpu-1 from rule idle".
func (w *Who) String() (s string) {
	if w.User != "" {
		s = "user " + text.Shown(string(w.User)) + " on "
	}
	if w.Device != nil {
		s += "GPU " + w.Device.String() + " on "
	}
	if w.Host != "" {
		s += "host " + text.Shown(string(w.Host))
	}
	s = strings.TrimSuffix(s, " on ")
	if _, isRule := w.Rule.Setting(); isRule {
		s += " from rule " + string(w.Rule)
	} else if w.Rule != "" {
		s += " from cap " + text.Shown(string(w.Rule))
	}
	return s
}

// String is the exemption in a line.
func (e *Exemption) String() string {
	return fmt.Sprintf("%s is exempt %s by %s: %s", e.Who.String(), e.Times(), e.By, e.Reason)
}

// Times says when it applies, such as "until 2026-12-08 00:00:00".
func (e *Exemption) Times() string {
	until := "until " + e.Until.Local().Format(time.DateTime)
	if e.From.IsZero() {
		return until
	}
	return "from " + e.From.Local().Format(time.DateTime) + " " + until
}

// Begun reports whether it has begun.
func (e *Exemption) Begun(now time.Time) bool { return e.From.IsZero() || !now.Before(e.From) }

func (e *Exemption) lead() time.Duration {
	if e.From.IsZero() {
		return 0
	}
	return e.From.Sub(e.Created)
}

// Check returns an error unless Who can be exempt.
func (w *Who) Check() error {
	switch {
	case w.User == "" && w.Host == "":
		return errors.New("an exemption needs a user or a host")
	case max(len(w.User), len(w.Host), len(w.UUID)) > maxName:
		return fmt.Errorf("the name of a user, host or GPU has at most %d bytes", maxName)
	case w.Device != nil && (w.Host == "" || w.User != "" || w.Rule != ""):
		return errors.New("a GPU is exempted with its host, for all users and from all rules")
	case w.Device == nil && w.UUID != "":
		return errors.New("uuid needs device, the GPU's index")
	case w.Device != nil && *w.Device < 0:
		return fmt.Errorf("%d is not a GPU", *w.Device)
	case w.Rule == "":
		return nil
	}
	s, isRule := w.Rule.Setting()
	isCap := !isRule || w.Rule == enforce.RuleCaps
	switch {
	case !isRule && !isCapName(string(w.Rule)):
		return fmt.Errorf("unknown rule %s: write one of %s, or the name of a cap", text.Shown(string(w.Rule)),
			strings.Join(enforce.RuleNames(), ", "))
	case isCap && w.User != "" && w.Host != "":
		return errors.New("a cap is exempted for a user on all hosts, or for a host: leave out one of them")
	case isCap:
		return nil
	case w.User == "" && !s.By(enforce.ByHost):
		return fmt.Errorf("rule %s counts on all hosts together: name a user, and no host", w.Rule)
	case w.User != "" && !s.By(enforce.ByUser):
		return fmt.Errorf("rule %s can't be exempted for one user: leave out the rule, or the user", w.Rule)
	case w.User != "" && w.Host != "" && !s.By(enforce.ByHost):
		return fmt.Errorf("rule %s counts on all hosts together: leave out the host", w.Rule)
	}
	return nil
}

// CheckRule returns an error unless the rule, or cap of the policy by name or ID, is known.
func (w *Who) CheckRule(p enforce.Policy) error {
	if _, isRule := w.Rule.Setting(); isRule || w.Rule == "" {
		return nil
	}
	names := enforce.RuleNames()
	for _, c := range p.Caps(time.Time{}) {
		if c.ID == string(w.Rule) {
			return nil
		}
		names = append(names, c.ID)
	}
	return fmt.Errorf("%s is neither a rule nor a cap of the policy: %s", text.Shown(string(w.Rule)),
		text.Hint(string(w.Rule), names, "write one of "+strings.Join(names, ", ")))
}

// Check returns an error unless the exemption is complete and within the limits.
func (e *Exemption) Check() error {
	length := e.Until.Sub(e.Created) - e.lead()
	switch {
	case e.lead() < 0 || e.lead() > maxLead:
		return errors.New("an exemption begins now or later, within a year")
	case e.By == "" || len(e.By) > maxName:
		return errors.New("an exemption needs an author")
	case e.Created.IsZero() || length <= 0 || length > MaxExemption:
		return fmt.Errorf("an exemption lasts for more than 0 and at most %d hours", int(MaxExemption.Hours()))
	}
	return errors.Join(CheckReason(e.Reason), e.Who.Check())
}

// CheckReason checks a reason, which is shown on terminals and pages.
func CheckReason(reason string) error {
	switch {
	case strings.TrimSpace(reason) == "":
		return errors.New("the reason is empty")
	case utf8.RuneCountInString(reason) > MaxReason:
		return fmt.Errorf("the reason has more than %d characters", MaxReason)
	case text.Printable(reason) != reason:
		return errors.New("the reason has characters that can't be printed on a line")
	}
	return nil
}

// ExemptionHours converts a number of hours to the length of an exemption.
func ExemptionHours(hours float64) (time.Duration, error) {
	length := time.Duration(hours * float64(time.Hour))
	if !(hours > 0 && hours <= MaxExemption.Hours()) || length <= 0 { // also NaN
		return 0, fmt.Errorf("hours: write more than 0 and at most %d", int(MaxExemption.Hours()))
	}
	return length, nil
}

// ID is short, and the same for the same user, host, device and rule.
func (w *Who) ID() string {
	device := string(w.UUID)
	if w.Device != nil && device == "" {
		device = w.Device.String()
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q", w.User, w.Host, device, w.Rule))
	return hex.EncodeToString(sum[:4])
}

// ExemptionList are the present exemptions, the oldest first. Its methods return another list.
type ExemptionList []Exemption

// Add returns the list with an exemption, instead of one of the same user, host, device and rule.
func (l ExemptionList) Add(e Exemption) (ExemptionList, error) {
	if err := e.Check(); err != nil {
		return l, err
	}
	list, _, _ := l.Remove(e.Who)
	if len(list) >= MaxExemptions {
		return l, fmt.Errorf("there are %d exemptions already: end some of them first", len(l))
	}
	return append(list, e), nil
}

// Remove returns the list without the exemption of Who, and that exemption; false for none.
func (l ExemptionList) Remove(w Who) (ExemptionList, Exemption, bool) {
	at := slices.IndexFunc(l, func(e Exemption) bool { return e.Same(&w) })
	if at < 0 {
		return slices.Clone(l), Exemption{}, false
	}
	return slices.Delete(slices.Clone(l), at, at+1), l[at], true
}

// Expire returns the exemptions that have not ended, and those that have.
func (l ExemptionList) Expire(now time.Time) (left, expired ExemptionList) {
	return slices.DeleteFunc(slices.Clone(l), func(e Exemption) bool { return e.ended(now) }),
		slices.DeleteFunc(slices.Clone(l), func(e Exemption) bool { return !e.ended(now) })
}

// An exemption that would last longer than allowed has ended, too: the clock was set back. Times are rounded to a
// second.
func (e *Exemption) ended(now time.Time) bool {
	return !now.Before(e.Until) || e.Until.Sub(now) > MaxExemption+e.lead()+time.Second
}

// Follow returns the list with UUIDs of exempt devices, as hosts first show them, and present indices.
func (l ExemptionList) Follow(cluster snapshot.Cluster) ExemptionList {
	list := slices.Clone(l)
	for i := range list {
		e := &list[i]
		h := snapshot.Find(cluster.Hosts, func(h *snapshot.Host) bool { return h.Name == e.Host })
		if e.Device == nil || h == nil || h.Snapshot == nil {
			continue
		}
		for _, d := range h.Snapshot.Devices {
			if d.UUID != "" && e.IsOf(d.Index, d.UUID) {
				e.Device, e.UUID = &d.Index, d.UUID
			}
		}
	}
	return list
}

// Move returns the list with the ends changed by to, and the other times by as much: they stay in order.
func (l ExemptionList) Move(to func(time.Time) time.Time) ExemptionList {
	list := slices.Clone(l)
	for i := range list {
		e := &list[i]
		length, rest := e.Until.Sub(e.Created), e.Until.Sub(e.From)
		e.Until = to(e.Until)
		e.Created = e.Until.Add(-length)
		if !e.From.IsZero() {
			e.From = e.Until.Add(-rest)
		}
	}
	return list
}
