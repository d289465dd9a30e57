package caps

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/judging"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
)

const (
	maxSkew    = time.Minute // the tolerated difference between the clocks of a host and this machine
	lapseShown = time.Hour   // how long the owner of a lapsed reservation is informed
)

// findReservations finds the reservations that run by the host's own clock or start within the warning, sorted by
// start. A host that doesn't report its clock has none.
func (c *Counting) findReservations() {
	tooMany := c.tooMany()
	for _, h := range c.Hosts {
		clock, known := h.Snapshot.Clock(h.At)
		if !known || h.Settings.IgnoreReservations {
			continue
		}
		warn := h.Settings.WarnOf(enforce.RuleReservations)
		lead := max(warn.For, time.Duration(warn.Cycles)*c.Fleet.Interval)
		for i := range h.Snapshot.Reservations {
			b := &h.Snapshot.Reservations[i]
			switch why := tooMany[b]; {
			case b.Lapsed && b.Ended != nil && clock.Sub(*b.Ended) < lapseShown:
				c.informOwner(h, b, enforce.ReservationLapsed,
					"has lapsed: none of its GPUs was attached or used for 30 minutes", "others may have them")
			case !b.Holds(clock) || b.UID == 0:
			case why != "":
				c.informOwner(h, b, enforce.ReservedTooMany, "is one too many: "+why,
					"it doesn't count, and nothing is freed for it")
			case !b.From.After(clock.Add(lead)):
				c.reservations[h] = append(c.reservations[h], b)
			}
		}
		if len(c.reservations[h]) > 0 {
			slices.SortFunc(c.reservations[h], func(a, b *snapshot.Reservation) int {
				return cmp.Or(a.From.Compare(b.From), a.Made.Compare(b.Made), cmp.Compare(a.ID, b.ID))
			})
			if skew := clock.Sub(h.At).Round(time.Second); skew.Abs() > maxSkew {
				// to the minute, so that the note stays the same
				c.Note(h, "its clock differs from this machine's by about %s: its reservations are judged by its own",
					text.FormatDuration(skew.Abs().Round(time.Minute)))
			}
		}
	}
}

func (c *Counting) accountOf(b *snapshot.Reservation) snapshot.Username {
	return c.Policy.Account(gpus.UserName(b.Username, &b.UID))
}

// tooMany are the reservations that a person may not have besides earlier ones, and why. Hosts refuse these, but two
// hosts may have been asked at once. Root's reservations count, and are never too many.
func (c *Counting) tooMany() map[*snapshot.Reservation]string {
	of := make(map[snapshot.Username][]*snapshot.Reservation)
	for _, h := range c.Hosts {
		for i := range h.Snapshot.Reservations {
			b := &h.Snapshot.Reservations[i]
			of[c.accountOf(b)] = append(of[c.accountOf(b)], b)
		}
	}
	why := make(map[*snapshot.Reservation]string)
	for user, list := range of {
		rule, known := c.Policy.ReservationRule(user)
		if !known || rule == nil || len(list) < 2 {
			continue
		}
		slices.SortStableFunc(list, func(a, b *snapshot.Reservation) int { // equal ones in the order of the hosts
			return a.Made.Compare(b.Made)
		})
		var before []snapshot.Reservation
		for _, b := range list {
			if !b.ByRoot && b.Ended == nil {
				why[b] = rule.TooMany(before, b, c.Now)
			}
			if why[b] == "" {
				before = append(before, *b)
			}
		}
	}
	return why
}

func (c *Counting) informOwner(h *judging.HostView, b *snapshot.Reservation, kind, what, follows string) {
	uid := b.UID
	c.Add(enforce.Finding{
		ID:   fmt.Sprintf("%s/%s/%s/%s", enforce.RuleReservations, b.ID, h.Name, kind),
		Rule: enforce.RuleReservations, Host: h.Name, User: c.accountOf(b), UID: &uid, Since: h.At,
		Reservation: &enforce.ReservationTrouble{
			ID: b.ID, Kind: kind, Text: fmt.Sprintf("reservation %s %s", b.ID, what), Follows: follows,
		},
	})
}

// withinReservations are the devices that owners of reservations hold on a host, up to the reserved number.
func (c *Counting) withinReservations(h *judging.HostView, list []*snapshot.Reservation, at time.Time,
) map[*personDevice]bool {
	reserved := make(map[snapshot.Username]int)
	for _, b := range list {
		if b.Runs(at) {
			reserved[c.accountOf(b)] += b.GPUs
		}
	}
	within := make(map[*personDevice]bool)
	for owner, n := range reserved {
		if u := c.byUser[owner]; u != nil {
			elsewhere := func(d *personDevice) bool { return d.Host != h }
			for _, d := range costliest(slices.DeleteFunc(slices.Clone(u.devices), elsewhere), n) {
				within[d] = true
			}
		}
	}
	return within
}

func (c *capOn) isOwnReserved(d *personDevice) bool {
	for other := range c.ownReserved {
		if other.Device == d.Device {
			return true
		}
	}
	return false
}

// judgeReservations applies each reservation as a cap on its host that all people share: the limit is what it and
// earlier ones leave. For example, of 8 GPUs 2 are reserved from 9:00 and 4 more from 10:00: the first cap allows 6,
// the second one 2. Devices that owners hold within their reservations don't count.
func (c *Counting) judgeReservations() {
	for _, h := range c.Hosts {
		list := c.reservations[h]
		for i := range list {
			if on, ok := c.reservationCap(h, list[:i+1]); ok {
				// the warning runs even while people don't exceed it
				c.CountPresence(h, &enforce.Finding{}, *on.Warn, on.key())
				on.judgeDevices()
			}
		}
		c.informOfFailed(h, list)
	}
}

// reservationCap is the cap of the last reservation: what all of them leave to others when it begins.
func (c *Counting) reservationCap(h *judging.HostView, list []*snapshot.Reservation) (on capOn, ok bool) {
	last := list[len(list)-1]
	begins := judging.Later(last.From, h.Clock())
	warn := h.Settings.WarnOf(enforce.RuleReservations)
	on = capOn{
		Counting: c, host: h, known: true, forOthers: true,
		limit: int64(leftToOthers(list, begins, h.Working())), ownReserved: c.withinReservations(h, list, begins),
		policyCap: &policyCap{rule: enforce.RuleReservations, Cap: &enforce.Cap{
			ID: last.ID, Name: reservationText(last, h), Kind: enforce.CapGPUs, Together: true, PerHost: true,
			Warn: &warn,
		}},
	}
	// A cancelled reservation may have had this ID, and its time.
	if acts := judging.Later(last.From, last.Made.Add(warn.For)); acts.After(h.Clock()) {
		on.notBefore = h.At.Add(acts.Sub(h.Clock()))
	}
	for _, u := range c.inOrder {
		if !h.SettingsOf(u.user).IgnoreReservations {
			on.people = append(on.people, u)
		}
	}
	return on, len(on.people) > 0
}

// leftToOthers is how many working GPUs reservations leave at a time, and at most what they leave of the GPUs that the
// host had when the last of them was made.
func leftToOthers(list []*snapshot.Reservation, at time.Time, working int) int {
	reserved, known, made := 0, working, time.Time{}
	for _, b := range list {
		if b.Runs(at) {
			if reserved += b.GPUs; !b.Made.Before(made) {
				known, made = b.Known, b.Made
			}
		}
	}
	return min(working, max(0, known-reserved))
}

func reservationText(b *snapshot.Reservation, h *judging.HostView) string {
	return fmt.Sprintf("%s has reserved %s from %s to %s", gpus.ShownUser(gpus.UserName(b.Username, &b.UID)),
		text.Plural(b.GPUs, "GPU"), snapshot.When(b.From.In(h.Zone)), snapshot.When(b.Until.In(h.Zone)))
}

// The newest reservation lacks failed GPUs first.
func (c *Counting) informOfFailed(h *judging.HostView, list []*snapshot.Reservation) {
	byMade := func(a, b *snapshot.Reservation) int { return cmp.Or(a.Made.Compare(b.Made), cmp.Compare(a.ID, b.ID)) }
	list = slices.SortedFunc(slices.Values(list), byMade)
	for i, b := range list {
		if left := leftFor(list, i, h.Working(), h.Clock()); left < b.GPUs {
			follows := "the others are kept for you"
			if left == 0 {
				follows = "none can be kept for you while that lasts"
			}
			c.informOwner(h, b, enforce.TooFewGPUs,
				fmt.Sprintf("lacks %d of its %s: too few GPUs of this host work or are judged", b.GPUs-left,
					text.Plural(b.GPUs, "GPU")), follows)
		}
	}
}

// leftFor is how many working GPUs are left for a reservation, besides those of people without reservations and of
// earlier reservations. The list is sorted by when they were made.
func leftFor(list []*snapshot.Reservation, i, working int, now time.Time) int {
	left, begins := working, judging.Later(list[i].From, now)
	times := []time.Time{begins} // when that may change
	for _, b := range list {
		times = append(times, b.From, b.Until)
	}
	for _, at := range times {
		if at.Before(begins) || !at.Before(list[i].Until) {
			continue
		}
		free := working - leftToOthers(list, at, working)
		for _, earlier := range list[:i] {
			if earlier.Runs(at) {
				free -= earlier.GPUs
			}
		}
		left = min(left, free)
	}
	return max(0, left)
}

// mayHaveUnreserved is how many GPUs a waiting person may have besides reservations of others.
func (c *Counting) mayHaveUnreserved(n *wait) int {
	running := slices.DeleteFunc(slices.Clone(c.reservations[n.h]),
		func(b *snapshot.Reservation) bool { return !b.Runs(n.h.Clock()) })
	if len(running) == 0 {
		return n.GPUs
	}
	on, ok := c.reservationCap(n.h, running)
	if !ok {
		return n.GPUs
	}
	own := 0 // reserved for the person, and not held yet
	for _, b := range running {
		if c.accountOf(b) == n.user.user {
			own += b.GPUs
		}
	}
	for d := range on.ownReserved {
		if d.Owner == n.user.number {
			own--
		}
	}
	return own + max(0, int(on.limit)-len(countable(on.devices(), time.Time{})))
}
