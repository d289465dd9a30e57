package snapshot

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/seed-3119e985/genv/snapshot/quota"
)

// Limits for one host and for one account there, far above what honest ones have.
const (
	MaxProcesses          = 8192
	MaxProcessesOfAccount = 512
	MaxEnvironments       = 4096
	maxAttached           = 8192 // attachments of environments
	maxMore               = 1024 // accounts
)

// More counts what Bound cut from an account. These GPUs are in use.
type More struct {
	UID          *UID          `json:"uid"` // nil if it isn't known
	Processes    int           `json:"processes,omitempty"`
	Environments int           `json:"envs,omitempty"`
	GPUs         []DeviceIndex `json:"gpus"`
}

// warning has no counts, so that it is the same in each snapshot.
func (m *More) warning() string {
	who := "accounts that aren't known have"
	if m.UID != nil {
		who = fmt.Sprintf("uid %d has", *m.UID)
	}
	return who + " more processes on GPUs, or more environments, than a snapshot has room for: the newest are left " +
		"out, and count as using their GPUs"
}

func accountOf(uid *UID) int64 {
	if uid == nil {
		return -1
	}
	return int64(*uid)
}

// Bound cuts what exceeds the limits: the newest of an account, and of a host the newest of its largest accounts.
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

// cutEnvironments also cuts their attachments; their processes' environment is unknown then.
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

// beyond returns the newest entries of accounts over each, and of the largest accounts while all together exceed most.
// The unknown account may be many people, so that only most bounds it.
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
