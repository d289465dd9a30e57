package exemption

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// List are the exemptions that there are, the oldest first. Its methods change no list:
// they return another.
type List []Exemption

// Add returns the list with an exemption; one of the same user, host, device and rule is
// replaced.
func (l List) Add(e Exemption) (List, error) {
	if err := e.Check(); err != nil {
		return l, err
	}
	list, _, _ := l.Remove(e.Who)
	if len(list) >= MaxCount {
		return l, fmt.Errorf("there are %d exemptions already: end some of them first", len(l))
	}
	return append(list, e), nil
}

// Remove returns the list without the exemption of a user, host, device and rule, and that
// exemption; false if there is none.
func (l List) Remove(w Who) (List, Exemption, bool) {
	at := slices.IndexFunc(l, func(e Exemption) bool { return e.Same(&w) })
	if at < 0 {
		return slices.Clone(l), Exemption{}, false
	}
	return slices.Delete(slices.Clone(l), at, at+1), l[at], true
}

// Expire returns the list without the exemptions that have ended, and those.
func (l List) Expire(now time.Time) (left, expired List) {
	if !slices.ContainsFunc(l, func(e Exemption) bool { return e.ended(now) }) {
		return l, nil
	}
	for _, e := range l {
		if e.ended(now) {
			expired = append(expired, e)
		} else {
			left = append(left, e)
		}
	}
	return left, expired
}

// ended reports whether an exemption doesn't hold any more. One that would last for longer
// than any may doesn't hold either: the clock was set back.
func (e *Exemption) ended(now time.Time) bool {
	return !now.Before(e.Until) || e.Until.Sub(now) > MaxDuration
}

// Follow returns the list with the UUIDs of exempt devices as their hosts show them, and the
// indices that these GPUs have now. Which GPU an index is gets known once.
func (l List) Follow(cluster snapshot.Cluster) List {
	list := slices.Clone(l)
	for i := range list {
		e := &list[i]
		at := slices.IndexFunc(cluster.Hosts, func(h snapshot.Host) bool { return e.Device != nil && h.Name == e.Host && h.Snapshot != nil })
		if at < 0 {
			continue
		}
		for _, d := range cluster.Hosts[at].Snapshot.Devices {
			if d.UUID != "" && e.IsOf(d.Index, d.UUID) {
				e.Device, e.UUID = &d.Index, d.UUID
			}
		}
	}
	return list
}

// At returns the list with the times that the wall clock now gives them, as
// enforce.Memory.At does.
func (l List) At(now time.Time) List {
	list := slices.Clone(l)
	for i := range list {
		e := &list[i]
		length := e.Until.Sub(e.Created)
		e.Until = now.Add(e.Until.Sub(now)).Round(time.Second).UTC()
		e.Created = e.Until.Add(-length)
	}
	return list
}

// From returns the list with the same times, measured by the monotonic clock of now from
// here on: a clock that is set changes nothing.
func (l List) From(now time.Time) List {
	list := slices.Clone(l)
	for i := range list {
		e := &list[i]
		e.Created, e.Until = now.Add(e.Created.Sub(now)), now.Add(e.Until.Sub(now))
	}
	return list
}

// Earlier returns the list with all times earlier by d.
func (l List) Earlier(d time.Duration) List {
	list := slices.Clone(l)
	for i := range list {
		list[i].Created, list[i].Until = list[i].Created.Add(-d), list[i].Until.Add(-d)
	}
	return list
}
