package service

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/text"
)

var errUntold = errors.New("the controller has said nothing about this user yet")

// withinCaps refuses what a cap doesn't allow, but takes nothing away. Root, hosts without a controller and unknown
// people aren't limited: a controller takes it back later.
func (s *Server) withinCaps(uid snapshot.UID, untold bool) func(*state.Files, *change.Result, bool) error {
	t, now := s.allowed.Load(), s.Now()
	if uid == 0 || !t.holds(now) {
		return nil
	}
	booked := s.booked(uid)
	return func(f *state.Files, r *change.Result, entered bool) error {
		added := without(r.Now, r.Before)
		person, known := t.People[uid]
		switch {
		case len(added) == 0 && !entered:
			return nil
		case !known && untold:
			return errUntold
		}
		for i := range person.Caps {
			u := &person.Caps[i]
			w := wanted{u, t.cap(u), cmp.Or(text.Printable(t.Contact), "your administrator"), uid, f, r, now.Sub(t.at), booked}
			if err := w.check(added, entered); err != nil {
				return err
			}
		}
		return nil
	}
}

// booked counts a user's GPUs in own running reservations, which no shared cap counts.
func (s *Server) booked(uid snapshot.UID) (gpus int) {
	list, _ := s.Reservations.All() // upkeep reports an error
	running, _ := snapshot.RunningAt(list, s.Now())
	for i := range running {
		if running[i].UID == uid {
			gpus += running[i].GPUs
		}
	}
	return gpus
}

func without(list, others []snapshot.DeviceIndex) []snapshot.DeviceIndex {
	return slices.DeleteFunc(slices.Clone(list),
		func(i snapshot.DeviceIndex) bool { return slices.Contains(others, i) })
}

// overCaps names the cap that a wait would exceed, whichever GPUs it gets.
func (s *Server) overCaps(look *snapshot.Snapshot, w *wait, has map[keptGPU]bool, missing int) string {
	t := s.allowed.Load()
	if w.UID == 0 || !t.holds(s.Now()) {
		return ""
	}
	for _, u := range t.People[w.UID].Caps {
		c := t.cap(&u)
		room, others := u.Limit-u.Elsewhere, 0 // others: GPUs that suit the wait and don't count toward the cap
		if c.Together {
			others = s.booked(w.UID)
		}
		if c.While || c.Counts != "gpus" && (c.Counts != "gpu-hours" || room > 0) {
			continue
		}
		for i := range look.Devices {
			switch index := look.Devices[i].Index; {
			case !slices.Contains(c.GPUs, index):
				if w.suitedBy(index) {
					others++
				}
			case slices.Contains(u.GPUs, index):
				room--
			case has[keptGPU{index, w.UID}]: // in a reservation, or not counted yet
				others--
			}
		}
		if int64(missing-others) > max(0, room) {
			return fmt.Sprintf("%s allows no more than %s", c.label(), text.CapAmount(c.Counts, u.Limit))
		}
	}
	return ""
}

type wanted struct {
	*CapUse
	cap     *Cap
	contact string
	uid     snapshot.UID
	files   *state.Files // after the change
	result  *change.Result
	age     time.Duration // since the host was told
	booked  int
}

// check applies the cap to the controller's counts plus this host's own.
func (w *wanted) check(added []snapshot.DeviceIndex, entered bool) error {
	here := w.Here
	own := append(w.files.OwnAttached(w.uid), w.result.Now...) // Now may be of an unregistered environment
	slices.Sort(own)
	own = without(slices.Compact(own), without(own, w.cap.GPUs))
	uncounted := without(own, w.GPUs)
	takes := len(without(uncounted, added)) < len(uncounted)
	if w.cap.Together && w.cap.Counts == "gpus" {
		uncounted = uncounted[min(w.booked, len(uncounted)):]
		takes = takes && len(uncounted) > 0
	}
	switch w.cap.Counts {
	case "environments":
		if takes, here = entered, here+1; !w.cap.Together {
			here = int64(w.files.EnvironmentsOf(w.uid))
		}
	case "gpu-hours":
		takes = takes && w.Elsewhere >= w.Limit
		here = 1
	default:
		for _, index := range uncounted {
			here += w.weight(index)
		}
	}
	if w.cap.While || !takes || w.Elsewhere+here <= w.Limit {
		return nil
	}
	return fmt.Errorf("%w: %s", state.ErrCap, w.refusal(added, own, w.Elsewhere+here))
}

func (w *wanted) weight(index snapshot.DeviceIndex) (n int64) {
	if w.cap.Counts != "memory" {
		return 1
	}
	d := w.files.Device(index)
	for i := range w.files.Environments {
		if env := &w.files.Environments[i]; env.UID == w.uid {
			if a := d.Attachment(env.EID); a != nil {
				n += cmp.Or(a.GPUMemory, d.TotalMemory).Bytes()
			}
		}
	}
	return n
}

func (w *wanted) refusal(added, own []snapshot.DeviceIndex, would int64) string {
	c := w.cap
	if c.Counts == "gpu-hours" {
		return fmt.Sprintf("%s allows %s until %s, and %.1f are used. Nothing was attached: ask %s if you need more.",
			c.label(), text.CapAmount(c.Counts, w.Limit), day(c.Until), float64(w.Elsewhere)/3600, w.contact)
	}
	amount := func(n int64) string { return text.CapAmount(c.Counts, n) }
	allows, now := c.label()+" allows you "+amount(w.Limit), "you have"
	if c.Together {
		allows, now = c.label()+" allows "+amount(w.Limit)+" to all who share it", "they have"
	}
	if !c.Until.IsZero() {
		allows += " until " + snapshot.When(c.Until.Local())
	}
	s := fmt.Sprintf("%s, and with this it would be %s: %s %s on this host", allows, amount(would), now, amount(w.Here))
	if gpus := w.GPUs; !c.Together && len(gpus) > 0 {
		s += fmt.Sprintf(" (GPU %s)", text.JoinIndices(gpus))
	}
	if w.Elsewhere > 0 {
		names := make([]string, len(w.Hosts))
		for i, name := range w.Hosts {
			names[i] = text.OneLine(string(name))
		}
		s += fmt.Sprintf(" and %s on %s, as seen %s ago", amount(w.Elsewhere), strings.Join(names, ", "),
			text.ShortDuration((time.Duration(w.SeenMS)*time.Millisecond + w.age).Round(time.Second)))
	}
	return s + ". " + w.help(added, own)
}

func (w *wanted) help(added, own []snapshot.DeviceIndex) string {
	kept := without(own, added)
	switch {
	case w.Limit == 0:
		return "Ask " + w.contact + " if you need more."
	case w.cap.Counts == "environments":
		return "End one that you need no more: genv deactivate, or exit its shells."
	case len(kept) > 0:
		return fmt.Sprintf("Give back what you need less: genv detach --index %s in its shell, or end its command.",
			kept[len(kept)-1])
	case w.Here == 0 && w.Elsewhere == 0:
		return "Ask for less."
	}
	return "End jobs that you need less on these hosts, then try again."
}

func (c *Cap) label() string {
	switch {
	case c.Rule != "":
		return text.Printable(c.Rule)
	case c.Name != "":
		return "cap " + text.Shown(c.Name)
	case c.Model != "":
		return "the cap on " + text.Printable(c.Model)
	}
	return "a cap of the policy"
}

func day(t time.Time) string { return t.Format("2 January") }

// Away says how long the controller has been silent, if over ForMS/2. It should renew each ForMS/3.
func (a *Allowance) Away() string {
	if !a.Expired && a.AgeMS <= a.ForMS/2 {
		return ""
	}
	return "the controller has said nothing for " + text.ShortDuration(time.Duration(a.AgeMS)*time.Millisecond)
}

// String is for `genv status`, such as "2 of 4 GPUs" or "vision 7 of 8".
func (a *Allowance) String() string {
	if a.Expired && len(a.Caps) > 0 {
		return "your caps are unknown: " + a.Away()
	}
	if a.Unknown() && len(a.Caps) > 0 {
		return CapsUnknown
	}
	var parts []string
	for _, p := range a.People {
		for _, c := range a.CapTexts(p) {
			parts = append(parts, c.Value)
		}
	}
	if away := a.Away(); away != "" && len(parts) > 0 {
		parts = append(parts, away)
	}
	return strings.Join(parts, "; ")
}

// CapTexts lists a person's caps by name, with usage and limit.
func (a *Allowance) CapTexts(p Person) (list []Rule) {
	for i := range p.Caps {
		c := a.cap(&p.Caps[i])
		list = append(list, Rule{cmp.Or(c.Name, c.Rule, c.Counts), c.status(&p.Caps[i])})
	}
	return list
}

func (c *Cap) status(u *CapUse) string {
	used := u.Here + u.Elsewhere
	s := fmt.Sprintf("%d of %s", used, text.CapAmount(c.Counts, u.Limit))
	switch {
	case c.Counts == "memory":
		s = fmt.Sprintf("%s of %s", text.GiB(used), text.CapAmount(c.Counts, u.Limit))
	case c.Counts == "gpu-hours":
		s = fmt.Sprintf("%s of %s GPU hours until %s", hours(used), hours(u.Limit), day(c.Until))
	case c.Counts == "gpus" && !c.Together && c.Model == "" && c.Name != "":
		s += " (" + text.Printable(c.Name) + ")"
	case c.Together && c.Name != "" && c.Counts == "gpus":
		s = fmt.Sprintf("%d of %d", used, u.Limit)
	case c.Model != "" && c.Counts == "gpus":
		s = fmt.Sprintf("%d of %d %s", used, u.Limit, text.Printable(c.Model))
	}
	if c.Together {
		s = strings.TrimSpace(text.Printable(c.Name) + " " + s)
	}
	if c.PerHost {
		s += " on this host"
	}
	if !c.Until.IsZero() && c.Counts != "gpu-hours" {
		s += " until " + snapshot.When(c.Until.Local())
	}
	if c.While {
		s += ", as far as others wait"
	}
	return s
}

func hours(seconds int64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(seconds)/3600), ".0")
}
