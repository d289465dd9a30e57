package holdings

import (
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// Remaining is what users hold in a shard, less what the caps have taken so far.
type Remaining struct {
	shard    *Shard
	number   int    // of the shard, among those that are decided about
	ends     []bool // of each process, from the beginning or because of something taken
	detached map[attachment]bool
	changed  []bool // of each host, whether something of it was taken
	users    map[snapshot.Username]*User

	room []candidate // for counted, which is called for one user after the other
	list []*candidate
}

type attachment struct {
	host   int
	device snapshot.DeviceIndex
	eid    snapshot.EnvID
}

// Remaining begins to apply caps to the holdings, which stay as they are.
func (s *Shard) Remaining() *Remaining {
	r := &Remaining{
		shard: s, ends: make([]bool, len(s.Processes)), changed: make([]bool, len(s.Hosts)),
		users: make(map[snapshot.Username]*User, len(s.Users)),
	}
	for i := range s.Processes {
		r.ends[i] = s.Processes[i].Ends
	}
	for i := range s.Users {
		r.users[s.Users[i].Name] = &s.Users[i]
	}
	return r
}

// Take marks what leaves because of an excess that is due.
func (r *Remaining) Take(e *Excess) {
	for _, env := range e.Envs {
		for _, loss := range env.Loses {
			r.detach(attachment{env.Host, loss.Device, env.EID})
			for _, p := range loss.Processes {
				r.end(p)
			}
		}
	}
	for _, d := range e.Devices {
		r.takeDevice(d)
	}
}

func (r *Remaining) takeDevice(d *Device) {
	for _, env := range d.Envs {
		r.detach(attachment{d.Host, d.Index, env.EID})
	}
	for _, use := range d.Processes {
		r.end(use.Process)
	}
}

func (r *Remaining) detach(a attachment) {
	if r.detached == nil {
		r.detached = make(map[attachment]bool)
	}
	r.detached[a], r.changed[a.host] = true, true
}

func (r *Remaining) end(process int) {
	p := &r.shard.Processes[process]
	r.ends[process], r.changed[p.Host] = r.ends[process] || !p.Stuck, true
}

// candidate is a device that a cap may take.
type candidate struct {
	*Device
	remaining *Remaining // of its shard
	cost      int8       // of losing it while nothing else is chosen, once setCost was called
	going     bool       // see Rules.Going
	chosen    bool       // already, by choose
}

func (d *candidate) host() *Host { return &d.remaining.shard.Hosts[d.Host] }

// counted lists the devices that count for the user's caps. The list is valid until the next
// call.
func (r *Remaining) counted(u *User) []*candidate {
	r.room, r.list = slices.Grow(r.room[:0], len(u.Devices))[:len(u.Devices)], slices.Grow(r.list[:0], len(u.Devices))
	for i := range u.Devices {
		d := &r.room[i]
		*d = candidate{Device: u.Devices[i], remaining: r}
		if d.counts() {
			r.list = append(r.list, d)
		}
	}
	return r.list
}
