package state

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Reserver is who reserves. Root always may; others need a rule.
type Reserver struct {
	UID       snapshot.UID
	Rule      *snapshot.ReservationRule // nil: none
	Elsewhere []snapshot.Reservation    // the person's on other hosts
	// Caps may refuse a reservation, given the person's others on this host; may be nil.
	Caps func(r *snapshot.Reservation, here []snapshot.Reservation) error
}

const MaxReservations = 8 // per person and host, not counting ended ones

const (
	maxID     = 16
	keepEnded = 366 * 24 * time.Hour // how long ended ones are kept: no policy has a longer pause
	clockRest = 2 * time.Minute      // tolerance for starts in the past, as starts are whole minutes
)

// Reserve adds a reservation, or returns the one with its ID. The host has known GPUs. The error is an
// UnavailableError, or wraps ErrRequest.
func Reserve(list []snapshot.Reservation, r snapshot.Reservation, by Reserver, known int, now time.Time) (
	[]snapshot.Reservation, snapshot.Reservation, error,
) {
	switch i := indexOf(list, r.ID); {
	case i >= 0 && list[i].UID == r.UID:
		return list, list[i], nil
	case i >= 0: // IDs are unique, for Cancel
		return list, r, Refuse("another person's reservation has the id %s", r.ID)
	}
	now = now.Truncate(time.Second)
	r.From, r.Until = r.From.Truncate(time.Second), r.Until.Truncate(time.Second)
	err := cmp.Or(checkReservation(&r, known, now), checkRoom(list, &r, known, now))
	if err == nil && by.UID != 0 {
		err = by.check(list, &r, now)
	}
	if err != nil {
		return list, r, err
	}
	r.From, r.Until, r.Made, r.Known = r.From.UTC(), r.Until.UTC(), now.UTC(), known
	r.Unheld, r.Ended, r.Lapsed, r.ByRoot = nil, nil, false, by.UID == 0
	return append(slices.Clone(list), r), r, nil
}

func indexOf(list []snapshot.Reservation, id string) int {
	return slices.IndexFunc(list, func(b snapshot.Reservation) bool { return b.ID == id })
}

func checkReservation(r *snapshot.Reservation, known int, now time.Time) error {
	switch {
	case r.ID == "" || len(r.ID) > maxID || !text.IsMadeOf(r.ID, ""):
		return Refuse("the id of a reservation is of at most %d letters and digits", maxID)
	case r.UID == 0:
		return Refuse("say for whom, with --user: root needs no reservation")
	case r.GPUs < 1:
		return Refuse("%d GPUs: reserve at least 1", r.GPUs)
	case r.GPUs > known:
		return Unavailable("this host has %s, fewer than %d", text.Plural(known, "GPU"), r.GPUs)
	case len(r.Reason) > snapshot.MaxBookingReason:
		return Refuse("the reason is longer than %d bytes", snapshot.MaxBookingReason)
	case r.From.Before(now.Add(-clockRest)):
		return Unavailable("%s is in the past", snapshot.When(r.From))
	}
	if err := cmp.Or(r.CheckTimes(), snapshot.CheckText("the reason", r.Reason)); err != nil {
		return Refuse("%w", err)
	}
	return nil
}

func checkRoom(list []snapshot.Reservation, r *snapshot.Reservation, known int, now time.Time) error {
	own, all := 0, 0
	for i := range list {
		if other := &list[i]; other.Holds(now) {
			if all++; other.UID == r.UID {
				own++
			}
		}
	}
	switch {
	case own >= MaxReservations:
		return Unavailable("%s are the maximum of one person on a host: genv reserve --cancel ID ends one",
			text.Plural(own, "reservation"))
	case all >= snapshot.MaxReservations:
		return Unavailable("this host has %s, its maximum: reserve on another host, or ask your administrator",
			text.Plural(all, "reservation"))
	}
	if reserved, at, until := moreThan(known, list, r); reserved > 0 {
		return Unavailable("%d of the %s of this host are reserved at %s, the first until %s: genv reserve --list "+
			"shows by whom", reserved, text.Plural(known, "GPU"), at, until)
	}
	return nil
}

// moreThan finds the first time when r and a list exceed most GPUs: how many the list has then (0: never), when, and
// the first end of these.
func moreThan(most int, list []snapshot.Reservation, r *snapshot.Reservation) (reserved int, at, until string) {
	begins := []time.Time{r.From}
	for i := range list {
		if from := list[i].From; from.After(r.From) && from.Before(r.Until) {
			begins = append(begins, from)
		}
	}
	slices.SortFunc(begins, time.Time.Compare)
	for _, from := range begins {
		running, reserved := snapshot.RunningAt(list, from)
		if reserved == 0 || reserved+r.GPUs <= most {
			continue
		}
		zone := r.From.Location()
		return reserved, snapshot.When(from.In(zone)), snapshot.When(firstEnd(running).In(zone))
	}
	return 0, "", ""
}

func firstEnd(list []snapshot.Reservation) time.Time {
	return slices.MinFunc(list, func(a, b snapshot.Reservation) int { return a.Until.Compare(b.Until) }).Until
}

func (by *Reserver) check(list []snapshot.Reservation, r *snapshot.Reservation, now time.Time) error {
	rule := by.Rule
	if rule == nil {
		return Unavailable("the policy lets you reserve nothing here: ask your administrator, who may do it for you " +
			"(genv reserve --user)")
	}
	here := without(list, func(b snapshot.Reservation) bool { return b.UID != r.UID })
	switch length := r.Until.Sub(r.From); {
	case rule.GPUs > 0 && r.GPUs > rule.GPUs:
		return Unavailable("you may reserve at most %s at once", text.Plural(rule.GPUs, "GPU"))
	case rule.Longest > 0 && length > rule.Longest:
		return Unavailable("you may reserve for at most %s, and this is %s", text.FormatDuration(rule.Longest),
			text.FormatDuration(length))
	case rule.Ahead > 0 && r.From.After(now.Add(rule.Ahead)):
		return Unavailable("you may reserve at most %s ahead: the latest start is %s", text.FormatDuration(rule.Ahead),
			snapshot.When(now.Add(rule.Ahead).In(r.From.Location())))
	}
	if why := rule.TooMany(slices.Concat(here, by.Elsewhere), r, now); why != "" {
		return Unavailable("%s", why)
	}
	if by.Caps != nil {
		if err := by.Caps(r, here); err != nil {
			return err
		}
	}
	return checkTogether(here, r, rule.GPUs)
}

// AtOnce returns the maximum of GPUs that r and a list have at a time.
func AtOnce(list []snapshot.Reservation, r *snapshot.Reservation) (n int) {
	for have, more := 0, true; more; more = have > 0 {
		n = have + r.GPUs
		have, _, _ = moreThan(n, list, r)
	}
	return n
}

// checkTogether limits a person's reserved GPUs here at a time to most; 0: unlimited.
func checkTogether(here []snapshot.Reservation, r *snapshot.Reservation, most int) error {
	have, at, until := moreThan(most, here, r)
	if most == 0 || have == 0 {
		return nil
	}
	more := "no GPU"
	if have < most {
		more = "at most " + text.Plural(most-have, "GPU")
	}
	return Unavailable("you may reserve at most %s at once on a host, and have %d reserved at %s, the first until "+
		"%s: %s more then", text.Plural(most, "GPU"), have, at, until, more)
}

// Cancel ends a reservation. Only its owner and root may.
func Cancel(list []snapshot.Reservation, id string, by snapshot.UID, now time.Time) (
	[]snapshot.Reservation, snapshot.Reservation, error,
) {
	i := indexOf(list, id)
	switch {
	case i < 0:
		return list, snapshot.Reservation{}, Unavailable("this host has no reservation %s: genv reserve --list shows "+
			"them", text.Shown(text.Cut(id, 40)))
	case by != 0 && by != list[i].UID:
		return list, list[i], Unavailable("reservation %s is another person's: only its owner and root may cancel it",
			id)
	case !list[i].Holds(now):
		return list, list[i], nil
	}
	list = slices.Clone(list)
	list[i].Ended = new(now.UTC().Truncate(time.Second))
	return list, list[i], nil
}

// End ends reservations that are over or lapse, and drops those that no longer count. If the clock isn't believed,
// nothing ends for good.
func End(list []snapshot.Reservation, lapse map[string]bool, now time.Time, believed bool) []snapshot.Reservation {
	latest := make(map[snapshot.UID]*snapshot.Reservation) // the ended one that counts longest
	next := slices.Clone(list)
	for i := range next {
		b := &next[i]
		switch {
		case b.Ended != nil || !believed:
		case !b.Holds(now):
			b.Ended = new(b.Until)
		case lapse[b.ID]:
			b.Ended, b.Lapsed = new(now.UTC().Truncate(time.Second)), true
		}
		if other := latest[b.UID]; b.Ended != nil && (other == nil || usedUntil(b).After(usedUntil(other))) {
			latest[b.UID] = b
		}
	}
	left := without(next, func(b snapshot.Reservation) bool {
		return b.Ended != nil && (b.ID != latest[b.UID].ID || believed && now.Sub(*b.Ended) > keepEnded)
	})
	ended := without(left, func(b snapshot.Reservation) bool { return b.Ended == nil })
	slices.SortFunc(ended, func(a, b snapshot.Reservation) int { return usedUntil(&a).Compare(usedUntil(&b)) })
	for ; len(ended) > snapshot.MaxReserved-snapshot.MaxReservations; ended = ended[1:] { // drop what counts least
		left = slices.DeleteFunc(left, func(b snapshot.Reservation) bool { return b.ID == ended[0].ID })
	}
	return left
}

func usedUntil(b *snapshot.Reservation) time.Time {
	until, _ := b.Used()
	return until
}

// Overbooked returns how many GPUs people have attached or use beyond what running reservations leave. GPUs within own
// reservations, and root's, don't count.
func (f *Files) Overbooked(list []snapshot.Reservation, at time.Time, used map[snapshot.DeviceIndex][]snapshot.UID,
) int {
	running, reserved := snapshot.RunningAt(list, at)
	if reserved == 0 {
		return 0
	}
	covered := make(map[snapshot.UID]int)
	for i := range running {
		covered[running[i].UID] += running[i].GPUs
	}
	newest := slices.MaxFunc(running, func(a, b snapshot.Reservation) int { return a.Made.Compare(b.Made) })
	environments := snapshot.ByID(f.Environments)
	counted := 0
	for i := range f.Devices {
		people := slices.Clone(used[f.Devices[i].Index])
		for _, a := range f.Devices[i].Attachments {
			if env := environments[a.EID]; env != nil {
				people = append(people, env.UID)
			}
		}
		slices.Sort(people)
		others := 0
		for _, uid := range slices.Compact(people) {
			if covered[uid]--; uid != 0 && covered[uid] < 0 {
				others = 1
			}
		}
		counted += others
	}
	return max(0, counted-max(0, newest.Known-reserved))
}

// CheckReserved refuses a change that takes more from reservations. before and after are from Overbooked.
func CheckReserved(list []snapshot.Reservation, before, after int, now time.Time) error {
	if after <= before {
		return nil
	}
	running, reserved := snapshot.RunningAt(list, now)
	var names []string
	for i := range running {
		names = with(names, gpus.ShownUser(gpus.UserName(running[i].Username, &running[i].UID)))
	}
	who, is := names[0], strings.Fields("is are")[min(reserved, 2)-1]
	if len(names) > 1 {
		who = fmt.Sprintf("%d people", len(names))
	}
	return Unavailable("%s of this host %s reserved by %s, until %s: too few are left for this, and nothing was "+
		"changed; genv reserve --list shows more", text.Plural(reserved, "GPU"), is, who,
		snapshot.When(firstEnd(running).Local()))
}
