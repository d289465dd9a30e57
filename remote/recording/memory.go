package recording

import (
	"maps"
	"reflect"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/extension"
	"github.com/seed-3119e985/genv/snapshot"
)

// MemoryChange says what a judgement knew of earlier cycles, other than what the judgement before
// it returned: outcomes of reports, for example, and messages that didn't arrive.
type MemoryChange struct {
	// Whole says that Set is all there is.
	Whole bool `json:"whole,omitempty"`
	// Set has entries that are new or different, and Drop the keys of those that are gone.
	Set  enforce.Memory `json:"set"`
	Drop enforce.Memory `json:"drop"`
	// Observer and UnderWay are always all there is.
	Observer bool       `json:"observer,omitempty"`
	UnderWay []underWay `json:"under_way,omitempty"`
}

// underWay is what the rules need to know of a report that a host is still carrying out.
type underWay struct {
	Host      snapshot.Hostname `json:"host"`
	ID        string            `json:"id"`
	Processes []ending          `json:"processes,omitempty"`
	Devices   []detaching       `json:"devices,omitempty"`
}

type ending struct {
	PID   snapshot.PID       `json:"pid"`
	Start snapshot.StartTime `json:"start,omitempty"`
}

type detaching struct {
	Index snapshot.DeviceIndex `json:"device"`
	EID   snapshot.EnvID       `json:"eid"`
}

// changeOf is what makes one memory of another one; ok is false if nothing does.
func changeOf(before, after *enforce.Memory) (c MemoryChange, ok bool) {
	c.Observer, c.UnderWay = after.Observer, underWayOf(after.UnderWay)
	sets := changeMap(before.Findings, after.Findings, same, &c.Set.Findings, &c.Drop.Findings)
	sets = changeMap(before.Present, after.Present, samePresence, &c.Set.Present, &c.Drop.Present) || sets
	sets = changeMap(before.Idle, after.Idle, time.Time.Equal, &c.Set.Idle, &c.Drop.Idle) || sets
	sets = changeMap(before.Released, after.Released, same, &c.Set.Released, &c.Drop.Released) || sets
	sets = changeMap(before.Stuck, after.Stuck, same, &c.Set.Stuck, &c.Drop.Stuck) || sets
	sets = changeMap(before.LeftAlone, after.LeftAlone, time.Time.Equal, &c.Set.LeftAlone, &c.Drop.LeftAlone) || sets
	extended := changeMap(before.Extended, after.Extended, sameUse, (*map[extension.Key]extension.Use)(&c.Set.Extended), (*map[extension.Key]extension.Use)(&c.Drop.Extended))
	sets = changeMap(before.Hosts, after.Hosts, same, &c.Set.Hosts, &c.Drop.Hosts) || extended || sets
	if !before.Time.Equal(after.Time) {
		c.Set.Time, sets = after.Time, true
	}
	return c, sets || before.Observer != after.Observer || !reflect.DeepEqual(underWayOf(before.UnderWay), c.UnderWay)
}

// whole is a change that has all of a memory.
func whole(m *enforce.Memory) MemoryChange {
	return MemoryChange{Whole: true, Set: *m, Observer: m.Observer, UnderWay: underWayOf(m.UnderWay)}
}

func same[V comparable](a, b V) bool { return a == b }

func samePresence(a, b enforce.Presence) bool { return a.Cycles == b.Cycles && a.Since.Equal(b.Since) }

func sameUse(a, b extension.Use) bool {
	equal := a.Free.Equal(b.Free)
	a.Free, b.Free = time.Time{}, time.Time{}
	return equal && a == b
}

// changeMap finds what changed in one part of a memory. Parts that a cycle didn't touch are the
// same map, and not compared.
func changeMap[K comparable, V any](before, after map[K]V, same func(a, b V) bool, set, drop *map[K]V) (changed bool) {
	if reflect.ValueOf(before).Pointer() == reflect.ValueOf(after).Pointer() {
		return false
	}
	for key, v := range after {
		if old, known := before[key]; !known || !same(old, v) {
			put(set, key, v)
		}
	}
	for key, v := range before {
		if _, known := after[key]; !known {
			put(drop, key, v)
		}
	}
	return len(*set)+len(*drop) > 0
}

func put[K comparable, V any](into *map[K]V, key K, v V) {
	if *into == nil {
		*into = make(map[K]V)
	}
	(*into)[key] = v
}

func underWayOf(reports []enforce.HostReport) []underWay {
	var list []underWay
	for i := range reports {
		r := &reports[i].Report
		u := underWay{Host: reports[i].Host, ID: r.ID}
		for k := range r.Terminate {
			p := &r.Terminate[k].Process
			u.Processes = append(u.Processes, ending{p.PID, p.Start})
		}
		for k := range r.Detach {
			u.Devices = append(u.Devices, detaching{r.Detach[k].Device, r.Detach[k].Environment.EID})
		}
		list = append(list, u)
	}
	return list
}

func reportsOf(list []underWay) []enforce.HostReport {
	var reports []enforce.HostReport
	for _, u := range list {
		r := enforce.Report{ID: u.ID}
		for _, p := range u.Processes {
			r.Terminate = append(r.Terminate, enforce.Termination{Process: snapshot.Process{PID: p.PID, Start: p.Start}})
		}
		for _, d := range u.Devices {
			r.Detach = append(r.Detach, enforce.Detachment{Device: d.Index, Environment: snapshot.Environment{EID: d.EID}})
		}
		reports = append(reports, enforce.HostReport{Host: u.Host, Report: r})
	}
	return reports
}

// Apply returns the memory of the judgement, from the one that the judgement before returned. It
// changes neither. A nil change has nothing to change.
func (c *MemoryChange) Apply(m enforce.Memory) enforce.Memory {
	if c == nil {
		return m
	}
	if c.Whole {
		m = c.Set
	} else {
		m.Findings = applied(m.Findings, c.Set.Findings, c.Drop.Findings)
		m.Present = applied(m.Present, c.Set.Present, c.Drop.Present)
		m.Idle = applied(m.Idle, c.Set.Idle, c.Drop.Idle)
		m.Released = applied(m.Released, c.Set.Released, c.Drop.Released)
		m.Stuck = applied(m.Stuck, c.Set.Stuck, c.Drop.Stuck)
		m.LeftAlone = applied(m.LeftAlone, c.Set.LeftAlone, c.Drop.LeftAlone)
		m.Extended = applied(m.Extended, c.Set.Extended, c.Drop.Extended)
		m.Hosts = applied(m.Hosts, c.Set.Hosts, c.Drop.Hosts)
		if !c.Set.Time.IsZero() {
			m.Time = c.Set.Time
		}
	}
	m.Observer, m.UnderWay = c.Observer, reportsOf(c.UnderWay)
	return m
}

func applied[M ~map[K]V, K comparable, V any](m, set, drop M) M {
	if len(set)+len(drop) == 0 {
		return m
	}
	next := maps.Clone(m)
	if next == nil {
		next = make(M)
	}
	maps.DeleteFunc(next, func(k K, _ V) bool { _, gone := drop[k]; return gone })
	maps.Copy(next, set)
	return next
}
