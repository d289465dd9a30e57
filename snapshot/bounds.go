package snapshot

import (
	"cmp"
	"fmt"
	"maps"
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

// accountOf is a uid as a key, and -1 for one that isn't known.
func accountOf(uid *UID) int64 {
	if uid == nil {
		return -1
	}
	return int64(*uid)
}

// Bound cuts what is beyond the bounds: of an account the newest, and of a host the newest of those who have most.
func (s *Snapshot) Bound() {
	if len(s.Processes) <= MaxProcessesOfAccount && len(s.Environments) <= MaxEnvironments &&
		s.attached() <= maxAttached && len(s.More) <= maxMore {
		return
	}
	cut := &cutting{s: s, of: make(map[int64]*More)}
	cut.environments()
	cut.processes()
	for _, before := range s.More {
		m := cut.more(before.UID)
		m.Processes, m.Environments = m.Processes+before.Processes, m.Environments+before.Environments
		m.GPUs = append(m.GPUs, before.GPUs...)
	}
	s.More = nil
	for _, m := range cut.of {
		slices.Sort(m.GPUs)
		m.GPUs = slices.Compact(m.GPUs)
		s.More = append(s.More, *m)
	}
	slices.SortFunc(s.More, func(a, b More) int { return cmp.Compare(accountOf(a.UID), accountOf(b.UID)) })
	s.More = s.More[:min(len(s.More), maxMore)]
	for i := range s.More {
		if text := s.More[i].warning(); !slices.Contains(s.Warnings, text) {
			s.Warnings = append(s.Warnings, text)
		}
	}
}

func (s *Snapshot) attached() (n int) {
	for i := range s.Devices {
		n += len(s.Devices[i].Attachments)
	}
	return n
}

type cutting struct {
	s  *Snapshot
	of map[int64]*More
}

func (c *cutting) more(uid *UID) *More {
	account := accountOf(uid)
	if c.of[account] == nil {
		c.of[account] = &More{UID: uid}
	}
	return c.of[account]
}

func (c *cutting) processes() {
	all := c.s.Processes
	of := func(i int) (int64, int) { return accountOf(all[i].UID), 1 }
	oldest := func(i, j int) int {
		return cmp.Or(cmp.Compare(all[i].Start, all[j].Start), cmp.Compare(all[i].PID, all[j].PID))
	}
	left := beyond(len(all), of, MaxProcessesOfAccount, MaxProcesses, oldest)
	if len(left) == 0 {
		return
	}
	kept := make([]Process, 0, len(all)-len(left))
	for i := range all {
		if !left[i] {
			kept = append(kept, all[i])
			continue
		}
		m := c.more(all[i].UID)
		m.Processes++
		for _, u := range all[i].Usage {
			m.GPUs = append(m.GPUs, u.Index)
		}
	}
	c.s.Processes = kept
}

// environments cuts environments and their attachments. Which processes are in them isn't known then.
func (c *cutting) environments() {
	all := c.s.Environments
	attached := make(map[EnvID]int)
	for i := range c.s.Devices {
		for _, a := range c.s.Devices[i].Attachments {
			attached[a.EID]++
		}
	}
	one := func(i int) (int64, int) { return int64(all[i].UID), 1 }
	attachments := func(i int) (int64, int) { return int64(all[i].UID), attached[all[i].EID] }
	oldest := func(i, j int) int {
		return cmp.Or(all[i].Creation.Compare(all[j].Creation), cmp.Compare(all[i].EID, all[j].EID))
	}
	left := beyond(len(all), one, math.MaxInt, MaxEnvironments, oldest)
	maps.Copy(left, beyond(len(all), attachments, math.MaxInt, maxAttached, oldest))
	if len(left) == 0 {
		return
	}
	gone, kept := make(map[EnvID]*More), make([]Environment, 0, len(all)-len(left))
	for i := range all {
		if !left[i] {
			kept = append(kept, all[i])
			continue
		}
		m := c.more(&all[i].UID)
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
		d.Attachments = slices.DeleteFunc(slices.Clone(d.Attachments), func(a Attachment) bool {
			m := gone[a.EID]
			if m != nil {
				m.GPUs = append(m.GPUs, d.Index)
			}
			return m != nil
		})
	}
	for i := range c.s.Processes {
		if p := &c.s.Processes[i]; gone[p.EID] != nil || gone[p.Inherited] != nil {
			p.EID, p.Inherited, p.EnvUnknown = "", "", true
		}
	}
}

// beyond are those of n entries to leave out, so that each account has at most each, and all together most: who has
// most loses the newest. Who isn't known may be many. of says whose an entry is, and its size.
func beyond(n int, of func(i int) (account int64, size int), each, most int, oldest func(i, j int) int) map[int]bool {
	left, byAccount, sizes := make(map[int]bool), make(map[int64][]int), make(map[int64]int)
	for i := range n {
		account, size := of(i)
		byAccount[account] = append(byAccount[account], i)
		sizes[account] += size
	}
	limitOf := func(account int64, limit int) int {
		if account < 0 {
			return limit
		}
		return min(limit, each)
	}
	var bounded []int
	for account, size := range sizes {
		bounded = append(bounded, limitOf(account, size))
	}
	share := quota.Fair(bounded, most)
	for account, entries := range byAccount {
		limit := limitOf(account, share)
		if sizes[account] <= limit {
			continue
		}
		slices.SortFunc(entries, oldest)
		sum := 0
		for _, i := range entries {
			_, size := of(i)
			if sum += size; sum > limit {
				left[i] = true
			}
		}
	}
	return left
}
