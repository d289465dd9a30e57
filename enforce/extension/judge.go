package extension

import (
	"fmt"
	"maps"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// Uses are what is remembered of all hosts.
type Uses map[Key]Use

// Host is a host that answered. Known says that it answered the last time as well, and
// Offer what the policy offers for an environment; nil if it is exempt or unknown.
type Host struct {
	Name     snapshot.Hostname
	Snapshot *snapshot.Snapshot
	Known    bool
	Offer    func(snapshot.EnvID) *Offer
}

// Judge forgets what is over, and decides on the requests of the hosts. It changes the
// Uses. Last is when the hosts were looked at before.
func (u Uses) Judge(hosts []Host, last, now time.Time) []Decision {
	byName := make(map[snapshot.Hostname]*Host, len(hosts))
	for i := range hosts {
		byName[hosts[i].Name] = &hosts[i]
	}
	counts := u.forget(byName, u.attached(hosts), last, now)
	var all []Decision
	for i := range hosts {
		all = append(all, u.answer(&hosts[i], counts[hosts[i].Name])...)
	}
	return all
}

// attached are those users with a Use who are attached to the device now, if only by what
// the state files say.
func (u Uses) attached(hosts []Host) map[Key]bool {
	attached := make(map[Key]bool)
	if len(u) == 0 {
		return attached
	}
	for i := range hosts {
		s := hosts[i].Snapshot
		uids := make(map[snapshot.EnvID]snapshot.UID, len(s.Environments))
		for j := range s.Environments {
			uids[s.Environments[j].EID] = s.Environments[j].UID
		}
		for j := range s.Devices {
			for _, a := range s.Devices[j].Attachments {
				if uid, registered := uids[a.EID]; registered {
					attached[Key{hosts[i].Name, uid, s.Devices[j].Index}] = true
				}
			}
		}
	}
	return attached
}

// forget drops what is over on the hosts that answered, and counts what each host has left.
func (u Uses) forget(hosts map[snapshot.Hostname]*Host, attached map[Key]bool, last, now time.Time) map[snapshot.Hostname]int {
	counts := make(map[snapshot.Hostname]int)
	for key, use := range u {
		if h := hosts[key.Host]; h != nil {
			look := Look{Attached: attached[key], Now: now}
			if h.Known {
				look.Last = last
			}
			next, keep := use.After(look)
			if !keep {
				delete(u, key)
				continue
			}
			u[key] = next
		}
		counts[key.Host]++
	}
	return counts
}

// maxDecisions is how many requests of a host are decided on at once; the others are next.
const maxDecisions = 256

// answer decides on the requests of a host, of which so many Uses are remembered.
func (u Uses) answer(h *Host, remembered int) []Decision {
	if len(h.Snapshot.Extensions) == 0 {
		return nil
	}
	var list []Decision
	attached := attachments(h.Snapshot)
	for i := range h.Snapshot.Extensions {
		r := &h.Snapshot.Extensions[i]
		offer := h.Offer(r.EID)
		at, there := attached[attachment{r.EID, r.Index}]
		if offer == nil || !there || !r.Extends(offer.Environment, r.Index, at) || len(list) == maxDecisions {
			continue
		}
		key := Key{h.Name, r.UID, r.Index}
		before, known := u[key]
		if !known && remembered >= MaxPerHost {
			continue
		}
		use, d := before.Answer(r, *offer)
		if d == nil {
			continue
		}
		if !known {
			remembered++
		}
		u[key] = use
		d.ID = fmt.Sprintf("extend/%s/%d/%s/%s", h.Name, r.UID, r.Index, r.ID)
		d.Host, d.User = h.Name, offer.Environment.Username
		list = append(list, *d)
	}
	return list
}

type attachment struct {
	eid   snapshot.EnvID
	index snapshot.DeviceIndex
}

// attachments are since when environments are attached to devices.
func attachments(s *snapshot.Snapshot) map[attachment]snapshot.Date {
	since := make(map[attachment]snapshot.Date)
	for i := range s.Devices {
		for _, a := range s.Devices[i].Attachments {
			since[attachment{a.EID, s.Devices[i].Index}] = a.Time
		}
	}
	return since
}

// Of is what is remembered of a user and a device.
func (u Uses) Of(host snapshot.Hostname, uid snapshot.UID, index snapshot.DeviceIndex) Use {
	return u[Key{host, uid, index}]
}

// At returns the Uses with other times: see enforce.Memory.At.
func (u Uses) At(at func(time.Time) time.Time) Uses {
	moved := maps.Clone(u)
	for key, use := range moved {
		if !use.Free.IsZero() {
			use.Free = at(use.Free)
			moved[key] = use
		}
	}
	return moved
}
