package policy_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/enforce/rules"
	"github.com/seed-3119e985/genv/snapshot"
)

// The lab of a simulated week: owners who go first on their hosts, a fair share while others wait, idle GPUs.
const labPolicy = `
defaults: {non-env-processes: count, idle: {after: 2h, below: 5%, end: true, warn: 30m}}
caps:
  - {name: each, gpus: 12, warn: 1h}
  - {name: owners, of: {hosts: ["h00", "h01", "h02"]}, users: ["!%vision"], together: true, gpus: 0, while: {waiting: ["%vision"]}, warn: 30m}
  - {name: share, gpus: 4, while: {waiting: anybody}, warn: 30m}`

const (
	labHosts, labGPUs, labPeople = 12, 8, 40
	labStep                      = time.Minute // idle GPUs are measured as often
)

// lab is what is there, and what has to hold.
type lab struct {
	t        *testing.T
	random   *rand.Rand
	file     *policy.File
	memory   enforce.Memory
	now      time.Time
	began    time.Time
	jobs     []*labJob
	waits    []*labWait
	bookings []*labBooking
	broken   map[string]bool   // GPUs that fail, as "host/index"
	failed   map[int]time.Time // when one failed last, or worked again, by host
	next     int
	warnedAt map[string]time.Time // of findings, when they were first seen
	ended    map[string]int       // jobs by rule
	kept     int                  // bookings that were
	byTaking int                  // waits that began by what was taken for them
}

// labJob is a job of a person on GPUs of a host.
type labJob struct {
	id, user, host int
	gpus           []snapshot.DeviceIndex
	idle, attached bool
	since          time.Time
}

// labWait is a command that waits on a host.
type labWait struct {
	id             string
	user, host, n  int
	since          time.Time
	kept           []snapshot.DeviceIndex // for it alone
	passes, passed bool                   // it will not take an offer, and has not
}

func personName(n int) snapshot.Username { return snapshot.Username(fmt.Sprintf("p%02d", n)) }
func hostName(n int) snapshot.Hostname   { return snapshot.Hostname(fmt.Sprintf("h%02d", n)) }
func isOwner(n int) bool                 { return n < 6 }

func newLab(t *testing.T, seed uint64) *lab {
	l := &lab{
		t: t, random: rand.New(rand.NewPCG(seed, 1)), file: parse(t, labPolicy), broken: map[string]bool{}, failed: map[int]time.Time{},
		began: time.Date(2026, 11, 16, 0, 0, 0, 0, time.Local), warnedAt: map[string]time.Time{}, ended: map[string]int{},
	}
	l.now, l.file.OfFleet.Interval = l.began, labStep
	owners := make([]string, 0, 6)
	for n := range 6 {
		owners = append(owners, string(personName(n)))
	}
	l.file.UnixGroups = unix(map[string]string{"vision": strings.Join(owners, " ")})
	return l
}

// holder is whose job has a GPU; nil for none.
func (l *lab) holder(host int, gpu snapshot.DeviceIndex) *labJob {
	for _, j := range l.jobs {
		if j.host == host && slices.Contains(j.gpus, gpu) {
			return j
		}
	}
	return nil
}

// free are the GPUs of a host that somebody who waits, or no one, may get.
func (l *lab) free(host int, by *labWait) (list []snapshot.DeviceIndex) {
	for gpu := range snapshot.DeviceIndex(labGPUs) {
		kept := slices.ContainsFunc(l.waits, func(w *labWait) bool {
			return w != by && w.host == host && slices.Contains(w.kept, gpu)
		})
		if !kept && l.holder(host, gpu) == nil && !l.broken[fmt.Sprintf("%d/%d", host, gpu)] {
			list = append(list, gpu)
		}
	}
	return list
}

// has is how many working GPUs a person has.
func (l *lab) has(user int) (n int) {
	for _, j := range l.jobs {
		for _, gpu := range j.gpus {
			if j.user == user && !l.broken[fmt.Sprintf("%d/%d", j.host, gpu)] {
				n++
			}
		}
	}
	return n
}

func (l *lab) start(user, host int, gpus []snapshot.DeviceIndex) {
	l.next++
	l.jobs = append(l.jobs, &labJob{
		id: l.next, user: user, host: host, gpus: slices.Clone(gpus), since: l.now,
		idle: l.random.IntN(8) == 0, attached: l.random.IntN(2) == 0,
	})
}

// live has people start, wait and end, and GPUs fail.
func (l *lab) live() {
	for range 6 {
		user, host, n := l.random.IntN(labPeople), l.random.IntN(labHosts), 1+l.random.IntN(4)
		waits := slices.ContainsFunc(l.waits, func(w *labWait) bool { return w.user == user })
		if free := l.free(host, nil); len(free) >= n && l.mayStart(user, host, n) {
			l.start(user, host, free[:n])
		} else if !waits {
			l.next++
			l.waits = append(l.waits, &labWait{
				id: fmt.Sprint("w", l.next), user: user, host: host, n: n, since: l.now, passes: l.random.IntN(5) == 0,
			})
		}
	}
	l.jobs = slices.DeleteFunc(l.jobs, func(*labJob) bool { return l.random.IntN(120) == 0 })
	l.waits = slices.DeleteFunc(l.waits, func(*labWait) bool { return l.random.IntN(60) == 0 })
	if l.random.IntN(40) == 0 {
		host := l.random.IntN(labHosts)
		gpu := fmt.Sprintf("%d/%d", host, l.random.IntN(labGPUs))
		l.broken[gpu], l.failed[host] = !l.broken[gpu], l.now
	}
	for _, w := range slices.Clone(l.waits) { // in the order of the queue
		switch free := l.free(w.host, w); {
		case len(free) < w.n || !l.mayStart(w.user, w.host, w.n):
		case w.passes && len(w.kept) > 0:
			w.kept, w.passed = nil, true
		default:
			if len(w.kept) > 0 {
				l.byTaking++
			}
			mine := slices.DeleteFunc(slices.Clone(free), func(g snapshot.DeviceIndex) bool { return !slices.Contains(w.kept, g) })
			others := slices.DeleteFunc(free, func(g snapshot.DeviceIndex) bool { return slices.Contains(w.kept, g) })
			l.start(w.user, w.host, append(mine, others...)[:w.n])
			l.waits = slices.DeleteFunc(l.waits, func(other *labWait) bool { return other == w })
		}
	}
}

// cluster is what the hosts report.
func (l *lab) cluster() (c snapshot.Cluster) {
	for host := range labHosts {
		s := &snapshot.Snapshot{Boot: l.began.Add(-time.Hour), UTCOffset: new(int), FirstUID: new(snapshot.UID(1000)), Waits: []snapshot.Wait{}, Reservations: []snapshot.Reservation{}, Skew: new(time.Duration)}
		for gpu := range snapshot.DeviceIndex(labGPUs) {
			busy := 90
			if j := l.holder(host, gpu); j != nil && j.idle {
				busy = 0
			}
			s.Devices = append(s.Devices, snapshot.Device{
				Index: gpu, UUID: snapshot.GPUUUID(fmt.Sprintf("GPU-%d-%d", host, gpu)), TotalMemory: snapshot.MiB(81559), Utilization: &busy,
				Failed: l.broken[fmt.Sprintf("%d/%d", host, gpu)],
			})
		}
		for _, j := range l.jobs {
			if j.host == host {
				l.report(s, j)
			}
		}
		for _, w := range l.waits {
			if w.host == host {
				s.Waits = append(s.Waits, snapshot.Wait{
					ID: w.id, UID: snapshot.UID(1000 + w.user), Username: personName(w.user), GPUs: w.n, Seconds: int64(l.now.Sub(w.since).Seconds()), Passed: w.passed,
				})
			}
		}
		for _, b := range l.bookings {
			if b.host == host {
				s.Reservations = append(s.Reservations, b.Reservation)
			}
		}
		c.Hosts = append(c.Hosts, snapshot.Host{Name: hostName(host), Snapshot: s, AskedAt: l.now, IsNew: true})
	}
	return c
}

func (l *lab) report(s *snapshot.Snapshot, j *labJob) {
	uid, start := snapshot.UID(1000+j.user), snapshot.StartTime(j.since.Sub(s.Boot)/(10*time.Millisecond))
	p := snapshot.Process{PID: snapshot.PID(100 + j.id), Start: start, UID: &uid, Username: personName(j.user)}
	if j.attached {
		p.EID = snapshot.EnvID(fmt.Sprint("e", j.id))
		s.Environments = append(s.Environments, snapshot.Environment{EID: p.EID, UID: uid, Username: p.Username})
	}
	for _, gpu := range j.gpus {
		p.Usage = append(p.Usage, snapshot.DeviceUsage{Index: gpu, Memory: snapshot.MiB(100)})
		if j.attached {
			s.Devices[gpu].Attachments = append(s.Devices[gpu].Attachments, snapshot.Attachment{EID: p.EID, Since: start})
		}
	}
	s.Processes = append(s.Processes, p)
}

// enforce judges, checks what is decided, and does it.
func (l *lab) enforce() {
	cluster := l.cluster()
	plan, memory, _ := rules.Judge(l.file, cluster, l.memory, l.now)
	l.memory = memory
	if l.random.IntN(200) == 0 { // another leader goes on, with what was stored
		l.memory.Notes, l.memory.UnderWay, l.memory.JustEnded = nil, nil, nil
	}
	for _, w := range l.waits { // what is free stays kept
		w.kept = slices.DeleteFunc(slices.Clone(w.kept), func(g snapshot.DeviceIndex) bool { return l.holder(w.host, g) != nil })
	}
	for _, w := range plan.Offers {
		l.checkWait(&w)
	}
	lost := make(map[int]string) // jobs by the finding
	for i := range plan.Findings {
		f := &plan.Findings[i]
		id := strings.TrimSuffix(f.ID, "/added")
		if f.Pending {
			l.warnedAt[id] = cmp.Or(l.warnedAt[id], l.now)
			for _, p := range f.Terminate {
				named := fmt.Sprint(capOfFinding(id), "#", p.PID)
				l.warnedAt[named] = cmp.Or(l.warnedAt[named], l.now)
			}
			continue
		}
		l.checkWarned(f)
		for _, p := range f.Terminate {
			lost[int(p.PID)-100] = f.ID
		}
	}
	for key := range l.warnedAt { // who was named stays so for a wait, or while a reservation's cap is exceeded: others may lose in turn
		id, _, _ := strings.Cut(key, "#")
		of := capOfFinding(id)
		gone := !slices.ContainsFunc(plan.Findings, func(f enforce.Finding) bool { return capOfFinding(f.ID) == of })
		if gone && (strings.Count(id, "/") != 4 || strings.HasPrefix(id, "reservations/")) {
			delete(l.warnedAt, key) // it is warned for again, or after a short break goes on with its time
		}
	}
	for id, because := range lost {
		l.checkLost(id, because, lost)
		rule, _, _ := strings.Cut(strings.TrimPrefix(because, "caps/"), "/")
		l.ended[rule]++
	}
	l.jobs = slices.DeleteFunc(l.jobs, func(j *labJob) bool { return lost[j.id] != "" })
}

// capOfFinding is the id of a finding, without who loses by the cap of a reservation.
func capOfFinding(id string) string {
	if parts := strings.Split(id, "/"); parts[0] == "reservations" {
		return strings.Join(parts[:3], "/")
	}
	return strings.TrimSuffix(id, "/added")
}

// checkWarned checks that each loss was warned for, long enough before: by its finding, or by one of its cap that named
// the process.
func (l *lab) checkWarned(f *enforce.Finding) {
	id := strings.TrimSuffix(f.ID, "/added")
	warned := func(what string) bool { return l.now.Sub(cmp.Or(l.warnedAt[what], l.now)) >= 7*time.Minute }
	for _, p := range f.Terminate {
		require.True(l.t, warned(id) || warned(fmt.Sprint(capOfFinding(id), "#", p.PID)), "%s, %v", f.ID, p)
	}
	require.True(l.t, warned(id) || len(f.Detach) == 0 || len(f.Terminate) > 0, f.ID)
}

// checkWait checks that what is taken lets the command begin, and keeps it for it.
func (l *lab) checkWait(w *enforce.Offer) {
	at := slices.IndexFunc(l.waits, func(other *labWait) bool { return other.id == w.ID })
	require.GreaterOrEqual(l.t, at, 0)
	wait := l.waits[at]
	if len(w.GPUs) == 0 {
		require.Less(l.t, w.Possible, wait.n)
		return
	}
	require.Len(l.t, w.GPUs, wait.n, "all that it waits for, or nothing")
	require.False(l.t, wait.passed, "who let an offer pass has no need")
	wait.kept = w.GPUs
}

// checkLost checks that anyone who loses a job was over the cap, or held it without computing.
func (l *lab) checkLost(id int, because string, lost map[int]string) {
	at := slices.IndexFunc(l.jobs, func(j *labJob) bool { return j.id == id })
	require.GreaterOrEqual(l.t, at, 0)
	j := l.jobs[at]
	switch {
	case strings.HasPrefix(because, "caps/each/"):
		require.Greater(l.t, l.has(j.user), 12, because)
	case strings.HasPrefix(because, "caps/owners/"):
		require.False(l.t, isOwner(j.user), because)
		require.Less(l.t, j.host, 3, because)
	case strings.HasPrefix(because, "reservations/"):
		require.True(l.t, slices.ContainsFunc(l.bookings, func(b *labBooking) bool {
			return b.host == j.host && b.user != j.user && b.Runs(l.now) && l.othersOn(b.host, b.user) > l.left(b)
		}), because)
	case strings.HasPrefix(because, "caps/share/"):
		require.Greater(l.t, l.has(j.user), 4, because)
		for _, w := range l.waits {
			if len(w.kept) > 0 && w.host == j.host && slices.ContainsFunc(j.gpus, func(g snapshot.DeviceIndex) bool { return slices.Contains(w.kept, g) }) {
				loses := 0 // anyway, by this plan, or booked
				for _, own := range l.jobs {
					booked := slices.ContainsFunc(l.bookings, func(b *labBooking) bool {
						return b.user == own.user && b.host == own.host && b.Runs(l.now) && len(own.gpus) <= b.GPUs
					})
					if own.user == w.user && (booked || lost[own.id] != "") {
						loses += len(own.gpus)
					}
				}
				require.LessOrEqual(l.t, l.has(w.user)-loses+w.n, 4, "who waits is within the share")
			}
		}
	default:
		require.True(l.t, j.idle, because)
	}
}

// Who is within the rules loses nothing, what is taken lets a command begin, and all is warned for.
func TestPropertyAWeekOfALab(t *testing.T) {
	days, weeks := 1, uint64(2)
	if os.Getenv("GENV_SOAK") != "" {
		days, weeks = 7, 30
	}
	for seed := range weeks {
		l := newLab(t, seed)
		for minute := 0; l.now.Before(l.began.AddDate(0, 0, days)); minute++ {
			if minute%5 == 0 {
				l.live()
				l.book()
			}
			l.enforce()
			l.now = l.now.Add(labStep)
		}
		t.Logf("seed %d: ended by rule: %v; waits that began by what was taken: %d; bookings that were kept: %d", seed, l.ended, l.byTaking, l.kept)
		for _, rule := range []string{"owners", "share", "idle", "reservations"} {
			require.NotZero(t, l.ended[rule], rule)
		}
		require.NotZero(t, l.byTaking)
	}
}
