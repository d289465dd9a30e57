package snapshot

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/seed-3119e985/genv/snapshot/quota"
)

// What is kept of one host, and of one account there: far above what honest ones have.
const (
	MaxProcesses          = 8192
	MaxProcessesOfAccount = 512
	MaxEnvironments       = 4096
	maxAttached           = 8192 // attachments of environments
	maxMore               = 1024 // accounts
)

// More is what an account has beyond these bounds, and so isn't in the snapshot. Its GPUs are in use.
type More struct {
	UID          *UID          `json:"uid"` // nil if it isn't known
	Processes    int           `json:"processes,omitempty"`
	Environments int           `json:"envs,omitempty"`
	GPUs         []DeviceIndex `json:"gpus"`
}

// warning is for people, and the same in each snapshot.
func (m *More) warning() string {
	who := "accounts that aren't known have"
	if m.UID != nil {
		who = fmt.Sprintf("uid %d has", *m.UID)
	}
	return who + " more processes on GPUs, or more environments, than a snapshot has room for: the newest are left " +
		"out, and count as using their GPUs"
}

// accountOf is a uid as a key, and -1 for one that isn't known.
func accountOf(uid *UID) int64 {
	if uid == nil {
		return -1
	}
	return int64(*uid)
}

// Bound cuts what is beyond the bounds: the newest of an account, and of a host the newest of those who have most.
func (s *Snapshot) Bound() {
	if len(s.Processes) <= MaxProcessesOfAccount && len(s.Environments) <= MaxEnvironments &&
		s.attached() <= maxAttached && len(s.More) <= maxMore {
		return
	}
	cut := make(map[int64]*More)
	of := func(uid *UID) *More {
		account := accountOf(uid)
		if cut[account] == nil {
			cut[account] = &More{UID: uid}
		}
		return cut[account]
	}
	s.cutEnvironments(of)
	s.cutProcesses(of)
	for _, before := range s.More {
		m := of(before.UID)
		m.Processes, m.Environments = m.Processes+before.Processes, m.Environments+before.Environments
		m.GPUs = append(m.GPUs, before.GPUs...)
	}
	s.More = nil
	for _, m := range cut {
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

// keep are the items that aren't left out. cut is called for the others.
func keep[T any](items []T, left map[int]bool, cut func(*T)) []T {
	if len(left) == 0 {
		return items
	}
	kept := make([]T, 0, len(items)-len(left))
	for i := range items {
		if left[i] {
			cut(&items[i])
		} else {
			kept = append(kept, items[i])
		}
	}
	return kept
}

func (s *Snapshot) cutProcesses(cut func(*UID) *More) {
	all := s.Processes
	of := func(i int) (int64, int) { return accountOf(all[i].UID), 1 }
	oldest := func(i, j int) int {
		return cmp.Or(cmp.Compare(all[i].Start, all[j].Start), cmp.Compare(all[i].PID, all[j].PID))
	}
	left := beyond(len(all), of, MaxProcessesOfAccount, MaxProcesses, oldest)
	s.Processes = keep(all, left, func(p *Process) {
		m := cut(p.UID)
		m.Processes++
		m.GPUs = append(m.GPUs, p.Indices()...)
	})
}

// cutEnvironments cuts their attachments, too. Which processes are in them isn't known then.
func (s *Snapshot) cutEnvironments(cut func(*UID) *More) {
	all := s.Environments
	attached := make(map[EnvID]int)
	for i := range s.Devices {
		for _, a := range s.Devices[i].Attachments {
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
	gone := make(map[EnvID]*More)
	s.Environments = keep(all, left, func(env *Environment) {
		m := cut(&env.UID)
		m.Environments++
		gone[env.EID] = m
	})
	if len(gone) > 0 {
		s.forget(gone)
	}
}

// forget removes the attachments of environments that were cut, and marks processes that may be in them.
func (s *Snapshot) forget(gone map[EnvID]*More) {
	for i := range s.Devices {
		d := &s.Devices[i]
		d.Attachments = slices.DeleteFunc(slices.Clone(d.Attachments), func(a Attachment) bool {
			m := gone[a.EID]
			if m != nil {
				m.GPUs = append(m.GPUs, d.Index)
			}
			return m != nil
		})
	}
	for i := range s.Processes {
		if p := &s.Processes[i]; gone[p.EID] != nil || gone[p.Inherited] != nil {
			p.EID, p.Inherited, p.EnvUnknown = "", "", true
		}
	}
}

// beyond are the entries to leave out, so that each account has at most each, and all together most: who has most loses
// the newest. An unknown account may be many, so only most bounds it. of is the account and size of an entry.
func beyond(n int, of func(i int) (account int64, size int), each, most int, oldest func(i, j int) int) map[int]bool {
	left, byAccount, sizes := make(map[int]bool), make(map[int64][]int), make(map[int64]int)
	for i := range n {
		account, size := of(i)
		byAccount[account] = append(byAccount[account], i)
		sizes[account] += size
	}
	limitOf := func(account int64, limit int) int {
		if account >= 0 {
			limit = min(limit, each)
		}
		return limit
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
