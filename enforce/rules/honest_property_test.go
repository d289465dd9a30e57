package rules_test

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
)

const (
	carol = snapshot.UID(1003)
	dave  = snapshot.UID(1004) // uses the GPU that is exempt
	eve   = snapshot.UID(1005) // has two GPUs attached, and may have one
)

// day is a site over time, with the controller that judges it each minute.
type day struct {
	*site
	policy stated
	memory controllerMemory
	saved  []byte        // by the cycle before
	ahead  time.Duration // of the controller's clock
	warned int           // minutes
	pauses int           // minutes that those of the controller take at most
	most   int           // minutes that a mistake takes at most: two with a pause in between aren't more than the warning
	exempt time.Time     // until when carol is
	silent time.Time     // until when the host is
	off    time.Time     // until when the controller is
	deaf   time.Time     // until when its record is full, so that no cycle counts
	fix    map[*job]time.Time
	rest   map[snapshot.UID]time.Time // until when somebody makes no other mistake
	clean  map[snapshot.UID]int       // minutes for which nothing kept carol, or eve, from being ended
	lost   map[snapshot.UID]int       // what they lost
	unseen int
	paused bool
}

func newDay(t *testing.T, seed uint64) *day {
	d := &day{site: newSite(t, seed), saved: []byte("{}"), fix: map[*job]time.Time{}, rest: map[snapshot.UID]time.Time{}, clean: map[snapshot.UID]int{}, lost: map[snapshot.UID]int{}}
	most := 4 // GPUs of a person
	switch d.warned, d.pauses, d.most = 10, 20, 7; d.IntN(3) {
	case 0:
		d.pauses, d.most = 120, 2
	case 1:
		d.warned, most = 0, 2 // and there are no mistakes
	}
	d.files.Environments = append(d.files.Environments, snapshot.Environment{EID: "3", UID: eve, Username: "eve", Creation: d.wrong(), PIDs: []snapshot.PID{3}})
	d.policy = stated{all: enforce.Settings{NonEnvProcesses: true, EnvDevices: true, EnvMemory: true, MaxDevices: &most, MaxDuration: 4 * time.Hour, Idle: &enforce.Idle{After: 4 * time.Hour, Below: 5}, Warn: lasting(d.warned)}, asked: capsOf(map[snapshot.Username]int{"eve": 1}), fleet: enforce.Fleet{Interval: time.Minute}}
	d.policy.exempt = func(s enforce.Subject) bool {
		return s.Process != nil && s.Process.UID != nil && *s.Process.UID == carol && d.now.Before(d.exempt)
	}
	if d.IntN(2) == 0 {
		d.policy.indices = []enforce.ExemptGPU{{Index: 0, Entry: "a:0"}}
	}
	return d
}

func (d *day) clock() time.Time { return d.now.Add(d.ahead) }

func (d *day) remove(drop func(*job) bool) { d.jobs = slices.DeleteFunc(d.jobs, drop) }

// disturb is what happens to the controller, its policy and disks.
func (d *day) disturb() {
	saved := proctest.Try(json.Marshal(d.memory.At(d.clock()))).OK(d.t)
	restart := func(saved []byte, step time.Duration) {
		d.memory = controllerMemory{}
		require.NoError(d.t, json.Unmarshal(saved, &d.memory.Memory))
		d.memory.Memory, d.ahead = d.memory.WithTimes(func(t time.Time) time.Time { return t.Add(step) }), d.ahead+step
		d.memory.Resumed = true
	}
	soon, later := d.now.Add(time.Duration(d.IntN(20))*time.Minute), d.now.Add(time.Duration(d.IntN(d.pauses))*time.Minute)
	switch d.IntN(11) {
	case 0: // after the clock was set
		restart(saved, time.Duration(d.IntN(7200)-3600)*time.Second)
	case 1:
		d.off = later
		restart(saved, 0)
	case 2: // another leader, which has the memory of the cycle before, and doesn't know that carol's pause was over
		restart(d.saved, 0)
		d.clean[carol] = 0
	case 3:
		restart([]byte("{}"), 0)
		clear(d.clean)
	case 4: // a reload
		d.policy.all.EnvMemory = !d.policy.all.EnvMemory
	case 5:
		d.exempt = soon
	case 6:
		d.silent = soon
	case 7:
		d.deaf = later
	case 8:
		d.full = !d.full
	case 9: // a shell ends, and its jobs go on
		e := d.files.Environments[d.IntN(2)].EID
		d.ended[e] = slices.ContainsFunc(d.jobs, func(j *job) bool { return j.eid == e })
	default:
		d.happens()
	}
}

// live is what people do in a minute.
func (d *day) live() {
	if d.IntN(3) == 0 {
		d.act(d.files.Environments[d.IntN(2)])
	}
	if e := d.files.Environments[d.IntN(2)]; d.warned > 0 && d.IntN(8) == 0 && d.now.After(d.rest[e.UID]) {
		d.mistake(e)
	}
	for _, j := range slices.Clone(d.jobs) {
		j.titled = j.titled || j.eid != "" && d.IntN(20) == 0
		if at, wrong := d.fix[j]; wrong && !d.now.Before(at) {
			d.correct(j)
			delete(d.fix, j)
		}
	}
	d.violate()
	bound := snapshot.GPUUUID("")
	if known := d.memory.ExemptGPUs["a"]; len(known) > 0 {
		bound = known[0].UUID
	}
	d.remove(func(j *job) bool { return j.uid == dave && j.card.uuid != bound })
	if at := slices.IndexFunc(d.listed(), func(c *card) bool { return c.uuid == bound }); at >= 0 && d.IntN(5) == 0 {
		d.start("", dave, at)
	}
}

// mistake begins a job on a GPU that isn't attached, or outside, which is put right within the warning.
func (d *day) mistake(e snapshot.Environment) {
	before, eid := len(d.jobs), e.EID
	if d.IntN(2) == 0 {
		eid = ""
	}
	d.start(eid, e.UID, d.IntN(len(d.cards)))
	if len(d.jobs) > before {
		d.fix[d.jobs[before]] = d.now.Add(time.Duration(d.IntN(d.most+1)) * time.Minute)
		d.rest[e.UID] = d.now.Add(time.Hour)
	}
}

// correct ends a job, or attaches its GPU where that can be done.
func (d *day) correct(j *job) {
	index := snapshot.DeviceIndex(slices.Index(d.listed(), j.card))
	d.look(true)
	attached := false
	if j.eid != "" && index >= 0 && d.IntN(2) == 0 {
		d.change(func(f *state.Files) {
			_, err := f.Attach(state.AttachRequest{EID: j.eid, Indices: []snapshot.DeviceIndex{index}, At: d.wrong()})
			attached = err == nil
			d.knows[j.eid] = f.AttachedTo(j.eid)
		})
	}
	if !attached {
		d.remove(func(other *job) bool { return other == j })
	}
}

// violate has carol use GPUs outside of environments: always another process, on any GPU, with pauses of one look. eve
// uses all that is attached to her environment, again and again.
func (d *day) violate() {
	d.change(func(f *state.Files) {
		_, _ = f.Attach(state.AttachRequest{EID: "3", Count: 2, OverSubscribe: true, At: d.wrong()})
	})
	for _, index := range d.files.AttachedTo("3") {
		d.ends("3", d.files.AttachedTo("3"))
		if !slices.ContainsFunc(d.jobs, func(j *job) bool { return j.eid == "3" && j.card == d.at(index) }) {
			d.start("3", eve, int(index))
		}
	}
	running := slices.ContainsFunc(d.jobs, func(j *job) bool { return j.uid == carol })
	switch {
	case !running:
		d.start("", carol, d.IntN(len(d.cards)))
		d.paused = true
	case d.IntN(4) == 0 && !d.paused:
		d.remove(func(j *job) bool { return j.uid == carol })
		d.paused = true
	default:
		d.paused = false
	}
}

// cycle is one of the controller. The host may be silent, or slow: what people do since then is not in its answer.
func (d *day) cycle(round int) {
	if d.now.Before(d.off) {
		clear(d.clean)
		return
	}
	host := snapshot.Host{Name: "a", Err: errDown, Round: round, AskedAt: d.clock(), IsNew: true}
	if view := d.look(true); view != nil && d.IntN(12) > 0 && !d.now.Before(d.silent) {
		view.Boot = booted.Add(d.ahead)
		host.Err, host.Snapshot = nil, view
	}
	if d.IntN(4) == 0 {
		d.now = d.now.Add(time.Duration(d.IntN(50)) * time.Second)
		d.live()
	}
	d.saved = proctest.Try(json.Marshal(d.memory.At(d.clock()))).OK(d.t)
	for plan := d.judge(&host, 1); len(plan.Ask) > 0 && host.AskedAt != d.clock() && host.Err == nil; plan = d.judge(&host, 0) {
		host.AskedAt = d.clock() // it is asked again at once, and is fast
		if host.Snapshot = d.look(true); host.Snapshot == nil {
			return
		}
		host.Snapshot.Boot = booted.Add(d.ahead)
	}
	for who, minutes := range d.clean {
		require.LessOrEqual(d.t, minutes, d.warned+3, who)
	}
}

// judge judges and acts. Nothing is done that can't be recorded.
func (d *day) judge(host *snapshot.Host, minutes int) enforce.Plan {
	before := d.memory
	plan := d.memory.Judge(d.policy, snapshot.Cluster{Hosts: []snapshot.Host{*host}}, d.clock())
	if d.now.Before(d.deaf) {
		d.memory = before
		clear(d.clean)
		return enforce.Plan{}
	}
	d.count(host, &plan, minutes)
	for _, o := range plan.Orders {
		d.memory.Learn("a", o.Order, d.carryOut(&o.Order))
	}
	return plan
}

// count counts the minutes for which carol and eve are there to be ended.
func (d *day) count(host *snapshot.Host, plan *enforce.Plan, minutes int) {
	d.clean[carol], d.clean[eve], d.unseen = d.clean[carol]+minutes, d.clean[eve]+minutes, d.unseen+minutes
	if host.Snapshot == nil {
		clear(d.clean)
		return
	}
	judged := map[snapshot.UID]int{}
	for i := range host.Snapshot.Processes {
		p := &host.Snapshot.Processes[i]
		index := p.Usage[0].Index
		if *p.UID == carol {
			d.unseen = 0
		}
		if host.Snapshot.Device(index).Judged() && !slices.Contains(plan.ExemptDevices["a"], index) {
			judged[*p.UID]++
		}
	}
	if d.now.Before(d.exempt) || d.unseen > 1 || d.unseen == 0 && judged[carol] == 0 { // one pause is less than an eighth
		d.clean[carol] = 0
	}
	if judged[eve] < 2 {
		d.clean[eve] = 0
	}
}

// carryOut does what a host does: it looks again first. A full disk keeps the attachments.
func (d *day) carryOut(o *order.Order) (outcomes []order.Outcome) {
	for _, x := range o.Detach {
		require.Equal(d.t, eve, x.Environment.UID, x.Because)
		outcome := order.Outcome{Device: x.Device, EID: x.Environment.EID, Status: order.StatusFailed}
		d.change(func(f *state.Files) { f.Detach(x.Environment.EID, x.Device); outcome.Status = order.StatusDetached })
		outcomes = append(outcomes, outcome)
	}
	for _, x := range o.Terminate {
		outcome := order.Outcome{PID: x.Process.PID, EID: x.Process.EID, Status: order.StatusGone}
		at := slices.IndexFunc(d.jobs, func(j *job) bool { return j.pid == x.Process.PID })
		index := x.Process.Usage[0].Index
		switch {
		case at < 0:
		case d.at(index) == nil || d.at(index).uuid != o.GPUs[index],
			len(x.Unattached) > 0 && slices.Contains(d.files.AttachedTo(x.Process.EID), index):
			outcome.Status = order.StatusChanged
		default:
			who := d.jobs[at].uid
			require.Contains(d.t, []snapshot.UID{carol, eve}, who, x.Why)
			d.jobs, outcome.Status = slices.Delete(d.jobs, at, at+1), order.StatusTerminated
			d.clean[who] = 0
			d.lost[who]++
		}
		outcomes = append(outcomes, outcome)
	}
	return outcomes
}

// TestPropertyHonestPeopleLoseNothing: titles, tmux, mistakes that are put right in time, GPUs that move, clocks that
// are set, restarts, other leaders, full disks of state and record, silent and slow hosts, reloads and exemptions that
// end. Who violates a rule is ended within the warning and three intervals, whatever happens to the controller then.
func TestPropertyHonestPeopleLoseNothing(t *testing.T) {
	days, lost := proctest.Cases(200), map[snapshot.UID]int{}
	if os.Getenv("GENV_SOAK") != "" {
		days = 10_000
	}
	for seed := range days {
		d := newDay(t, seed)
		begun := d.now
		for minute := range 3 * 60 {
			d.now = begun.Add(time.Duration(minute) * time.Minute)
			if d.IntN(25) == 0 {
				d.disturb()
			}
			d.live()
			d.cycle(minute + 1)
			require.False(t, t.Failed(), "day %d, minute %d", seed, minute)
		}
		lost[carol], lost[eve] = lost[carol]+d.lost[carol], lost[eve]+d.lost[eve]
	}
	require.Greater(t, min(lost[carol], lost[eve]), int(days))
}
