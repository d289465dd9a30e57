package handover

import (
	"hash/fnv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/notify/mail"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
)

// parts is into how many a memory is split: few enough for one transaction, and enough that
// the part of a large fleet stays small.
const parts = 64

// partOf is the part of what is known about a host or a user.
func partOf(name string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return int(h.Sum32() % parts)
}

// subject is the host of a finding, or the user of one about several hosts, by its id or by
// a key of Memory.Present: both are RULE/SUBJECT/….
func subject(key string) string {
	_, rest, _ := strings.Cut(key, "/")
	name, _, _ := strings.Cut(rest, "/")
	return name
}

// first is the host of a key of Memory.Idle.
func first(key string) string {
	name, _, _ := strings.Cut(key, "/")
	return name
}

// split returns the parts of a memory, and which of them have anything. What belongs to all stays out.
func split(m *controller.FleetMemory) (p *[parts]controller.FleetMemory, filled [parts]bool) {
	p = new([parts]controller.FleetMemory)
	fill := func(i int) *controller.FleetMemory {
		filled[i] = true
		return &p[i]
	}
	r := &m.Rules
	divide(r.Findings, subject, func(i int) *map[string]enforce.KnownFinding { return &fill(i).Rules.Findings })
	divide(r.Present, subject, func(i int) *map[string]enforce.Presence { return &fill(i).Rules.Present })
	divide(r.Idle, first, func(i int) *map[string]time.Time { return &fill(i).Rules.Idle })
	divide(r.Released, attachmentHost, func(i int) *map[snapshot.AttachmentKey]bool { return &fill(i).Rules.Released })
	divide(r.Seen, attachmentHost, func(i int) *map[snapshot.AttachmentKey]enforce.Seen { return &fill(i).Rules.Seen })
	divide(r.Stuck, processHost, func(i int) *map[snapshot.ProcessKey]string { return &fill(i).Rules.Stuck })
	divide(r.LeftAlone, processHost, func(i int) *map[snapshot.ProcessKey]time.Time { return &fill(i).Rules.LeftAlone })
	divide(r.Hosts, text, func(i int) *map[snapshot.Hostname]enforce.KnownHost { return &fill(i).Rules.Hosts })
	divide(m.Machines.Twins, text, func(i int) *map[string][]string { return &fill(i).Machines.Twins })
	divide(m.Guards, text, func(i int) *controller.GuardMemory { return &fill(i).Guards })
	divide(m.Mail.Users, text, func(i int) *map[snapshot.Username]*mail.Person { return &fill(i).Mail.Users })
	for host, users := range m.Messages.Users {
		to := &fill(partOf(string(host))).Messages
		add(&to.Users, host, users)
	}
	return p, filled
}

// join adds a part to a memory.
func join(m, part *controller.FleetMemory) {
	r, from := &m.Rules, &part.Rules
	merge(&r.Findings, from.Findings)
	merge(&r.Present, from.Present)
	merge(&r.Idle, from.Idle)
	merge(&r.Released, from.Released)
	merge(&r.Seen, from.Seen)
	merge(&r.Stuck, from.Stuck)
	merge(&r.LeftAlone, from.LeftAlone)
	merge(&r.Hosts, from.Hosts)
	merge(&m.Machines.Twins, part.Machines.Twins)
	merge(&m.Guards, part.Guards)
	merge(&m.Mail.Users, part.Mail.Users)
	merge(&m.Messages.Users, part.Messages.Users)
}

func attachmentHost(k snapshot.AttachmentKey) string { return string(k.Host) }
func processHost(k snapshot.ProcessKey) string       { return string(k.Host) }
func text[S ~string](s S) string                     { return string(s) }

// divide puts each entry of a map into the same map of the part of its host or user.
func divide[M ~map[K]V, K comparable, V any](all M, of func(K) string, in func(part int) *M) {
	for k, v := range all {
		add(in(partOf(of(k))), k, v)
	}
}

func add[M ~map[K]V, K comparable, V any](m *M, k K, v V) {
	if *m == nil {
		*m = make(M)
	}
	(*m)[k] = v
}

func merge[M ~map[K]V, K comparable, V any](to *M, from M) {
	for k, v := range from {
		add(to, k, v)
	}
}
