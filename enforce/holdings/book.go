package holdings

import (
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// Book is a shard's holdings while the caps are applied, with what leaves because of them.
type Book struct {
	shard    *Shard
	number   int    // of the shard, among those that are decided about
	ends     []bool // of each process, from the beginning or because of something taken
	detached map[attachment]bool
	changed  []bool // of each host, whether something of it was taken
	users    map[snapshot.Username]*User

	room []held // for counted, which is called for one user after the other
	list []*held
}

type attachment struct {
	host   int
	device snapshot.DeviceIndex
	eid    snapshot.EnvID
}

// Book begins to apply caps to the holdings, which stay as they are.
func (s *Shard) Book() *Book {
	b := &Book{
		shard: s, ends: make([]bool, len(s.Processes)), changed: make([]bool, len(s.Hosts)),
		users: make(map[snapshot.Username]*User, len(s.Users)),
	}
	for i := range s.Processes {
		b.ends[i] = s.Processes[i].Ends
	}
	for i := range s.Users {
		b.users[s.Users[i].Name] = &s.Users[i]
	}
	return b
}

// Take marks what leaves because of an excess that is due.
func (b *Book) Take(e *Excess) {
	for _, env := range e.Envs {
		for _, loss := range env.Loses {
			b.detach(attachment{env.Host, loss.Device, env.EID})
			for _, p := range loss.Processes {
				b.end(p)
			}
		}
	}
	for _, d := range e.Devices {
		b.takeDevice(d)
	}
}

func (b *Book) takeDevice(d *Device) {
	for _, env := range d.Envs {
		b.detach(attachment{d.Host, d.Index, env.EID})
	}
	for _, use := range d.Processes {
		b.end(use.Process)
	}
}

func (b *Book) detach(a attachment) {
	if b.detached == nil {
		b.detached = make(map[attachment]bool)
	}
	b.detached[a], b.changed[a.host] = true, true
}

func (b *Book) end(process int) {
	p := &b.shard.Processes[process]
	b.ends[process], b.changed[p.Host] = b.ends[process] || !p.Stuck, true
}

// held is a device with the book that it is in.
type held struct {
	*Device
	book   *Book
	cost   int8 // of losing it while nothing else is chosen, once setCost was called
	chosen bool // already, by choose
}

func (h *held) host() *Host { return &h.book.shard.Hosts[h.Host] }

// counted lists the devices that count for the user's caps. The list is valid until the next
// call.
func (b *Book) counted(u *User) []*held {
	b.room, b.list = slices.Grow(b.room[:0], len(u.Devices))[:len(u.Devices)], slices.Grow(b.list[:0], len(u.Devices))
	for i := range u.Devices {
		h := &b.room[i]
		*h = held{Device: u.Devices[i], book: b}
		if h.counts() {
			b.list = append(b.list, h)
		}
	}
	return b.list
}
