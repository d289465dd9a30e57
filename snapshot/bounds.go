package snapshot

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/seed-3119e985/genv/snapshot/quota"
)

// What is kept of one host, and of one account there. It is far above what honest ones have.
const (
	MaxProcesses          = 8192
	MaxProcessesOfAccount = 512
	MaxEnvironments       = 4096
	// maxAttached is how many attachments of environments there are.
	maxAttached = 8192
	// maxMore is how many accounts More names.
	maxMore = 1024
)

// More is what an account has beyond these bounds. It isn't in the snapshot: its GPUs are in use.
type More struct {
	UID          *UID          `json:"uid"` // nil if it isn't known
	Processes    int           `json:"processes,omitempty"`
	Environments int           `json:"envs,omitempty"`
	GPUs         []DeviceIndex `json:"gpus"`
}

// warning says it for people, in each snapshot alike.
func (m *More) warning() string {
	who := "accounts that aren't known have"
	if m.UID != nil {
		who = fmt.Sprintf("uid %d has", *m.UID)
	}
	return who + " more processes on GPUs, or more environments, than a snapshot holds: the newest are left out, " +
		"and count as using their GPUs"
}

// account is who has processes or environments.
type account struct {
	uid   UID
	known bool
}

// order sorts accounts by uid, after one that isn't known.
func (a account) order() int64 {
	if !a.known {
		return -1
	}
	return int64(a.uid)
}

func accountOf(uid *UID) account {
	if uid == nil {
		return account{}
	}
	return account{*uid, true}
}

// Bound cuts what a host, or an account there, has beyond the bounds: of an account the newest, and of a host the
// newest of those accounts that have most. Of all other accounts, the snapshot stays complete.
func (s *Snapshot) Bound() {
	if len(s.Processes) <= MaxProcessesOfAccount && len(s.Environments) <= MaxEnvironments &&
		s.attached() <= maxAttached && len(s.More) <= maxMore {
		return
	}
	cut := &cutting{s: s, of: make(map[account]*More)}
	cut.environments()
	cut.processes()
	for i := range s.More {
		cut.merge(&s.More[i])
	}
	s.More = nil
	for _, m := range cut.of {
		slices.Sort(m.GPUs)
		m.GPUs = slices.Compact(m.GPUs)
		s.More = append(s.More, *m)
	}
	slices.SortFunc(s.More, func(a, b More) int {
		return cmp.Compare(accountOf(a.UID).order(), accountOf(b.UID).order())
	})
	s.More = s.More[:min(len(s.More), maxMore)]
	for i := range s.More {
		if text := s.More[i].warning(); !slices.Contains(s.Warnings, text) {
			s.Warnings = append(s.Warnings, text)
		}
	}
}

// attached is how many attachments there are.
func (s *Snapshot) attached() (n int) {
	for i := range s.Devices {
		n += len(s.Devices[i].Attachments)
	}
	return n
}

// cutting is what is cut of a snapshot.
type cutting struct {
	s  *Snapshot
	of map[account]*More
}

// more is what was cut of an account.
func (c *cutting) more(a account) *More {
	m := c.of[a]
	if m == nil {
		m = &More{}
		if a.known {
			m.UID = &a.uid
		}
		c.of[a] = m
	}
	return m
}

func (c *cutting) merge(before *More) {
	m := c.more(accountOf(before.UID))
	m.Processes, m.Environments = m.Processes+before.Processes, m.Environments+before.Environments
	m.GPUs = append(m.GPUs, before.GPUs...)
}

// processes cuts processes.
func (c *cutting) processes() {
	all := c.s.Processes
	list := make([]entry, len(all))
	for i := range all {
		list[i] = entry{of: accountOf(all[i].UID), size: 1}
	}
	oldest := func(i, j int) int {
		return cmp.Or(cmp.Compare(all[i].Start, all[j].Start), cmp.Compare(all[i].PID, all[j].PID))
	}
	left := beyond(list, MaxProcessesOfAccount, MaxProcesses, oldest)
	if len(left) == 0 {
		return
	}
	kept := make([]Process, 0, len(all)-len(left))
	for i := range all {
		if !left[i] {
			kept = append(kept, all[i])
			continue
		}
		m := c.more(list[i].of)
		m.Processes++
		for _, u := range all[i].Usage {
			m.GPUs = append(m.GPUs, u.Index)
		}
	}
	c.s.Processes = kept
}

// environments cuts environments with what they are attached to. It isn't known then in which environment processes
// are that claim one of these.
func (c *cutting) environments() {
	all := c.s.Environments
	attached := make(map[EnvID]int)
	for i := range c.s.Devices {
		for _, a := range c.s.Devices[i].Attachments {
			attached[a.EID]++
		}
	}
	list := make([]entry, len(all))
	for i := range all {
		list[i] = entry{of: account{all[i].UID, true}, size: 1}
	}
	oldest := func(i, j int) int {
		return cmp.Or(all[i].Creation.Compare(all[j].Creation), cmp.Compare(all[i].EID, all[j].EID))
	}
	left := beyond(list, math.MaxInt, MaxEnvironments, oldest)
	for i := range list {
		list[i].size = attached[all[i].EID]
	}
	for i := range beyond(list, math.MaxInt, maxAttached, oldest) {
		left[i] = true
	}
	if len(left) == 0 {
		return
	}
	gone, kept := make(map[EnvID]*More), make([]Environment, 0, len(all)-len(left))
	for i := range all {
		if !left[i] {
			kept = append(kept, all[i])
			continue
		}
		m := c.more(list[i].of)
		m.Environments++
		gone[all[i].EID] = m
	}
	c.s.Environments = kept
	c.forget(gone)
}

// forget removes the attachments of environments that were cut, and marks processes that may be in them.
func (c *cutting) forget(gone map[EnvID]*More) {
	for i := range c.s.Devices {
		d := &c.s.Devices[i]
		kept := make([]Attachment, 0, len(d.Attachments))
		for _, a := range d.Attachments {
			if m := gone[a.EID]; m != nil {
				m.GPUs = append(m.GPUs, d.Index)
			} else {
				kept = append(kept, a)
			}
		}
		d.Attachments = kept
	}
	for i := range c.s.Processes {
		if p := &c.s.Processes[i]; gone[p.EID] != nil || gone[p.Inherited] != nil {
			p.EID, p.Inherited, p.EnvUnknown = "", "", true
		}
	}
}

// entry is something that an account has.
type entry struct {
	of   account
	size int
}

// beyond are the entries to leave out, so that accounts have at most each, and all of them together most: those
// that have most lose the newest of theirs. Who isn't known may be many, so that each doesn't hold for that.
func beyond(list []entry, each, most int, oldest func(i, j int) int) map[int]bool {
	left, byAccount, sizes := make(map[int]bool), make(map[account][]int), make(map[account]int)
	for i, e := range list {
		byAccount[e.of] = append(byAccount[e.of], i)
		sizes[e.of] += e.size
	}
	var bounded []int
	for a, size := range sizes {
		if a.known {
			size = min(size, each)
		}
		bounded = append(bounded, size)
	}
	share := quota.Fair(bounded, most)
	for a, entries := range byAccount {
		limit := share
		if a.known {
			limit = min(limit, each)
		}
		if sizes[a] <= limit {
			continue
		}
		slices.SortFunc(entries, oldest)
		sum := 0
		for _, i := range entries {
			if sum += list[i].size; sum > limit {
				left[i] = true
			}
		}
	}
	return left
}
