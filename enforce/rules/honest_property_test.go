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
	warned = 10 // minutes
	carol  = snapshot.UID(1003)
	dave   = snapshot.UID(1004) // uses the GPU that is exempt
)

// day is a site over time, with the controller that judges it each minute.
type day struct {
	*site
	policy stated
	memory controllerMemory
	saved  []byte        // by the cycle before
	ahead  time.Duration // of the controller's clock
	exempt time.Time     // until when carol is
	silent time.Time     // until when the host is
	fix    map[*job]time.Time
	rest   map[snapshot.UID]time.Time // until when somebody makes no other mistake
	clean  int                        // minutes for which nothing kept carol from being ended
	unseen int
	paused bool
	ended  int
}

func newDay(t *testing.T, seed uint64) *day {
	d := &day{site: newSite(t, seed), fix: make(map[*job]time.Time), rest: make(map[snapshot.UID]time.Time)}
	d.policy = stated{all: enforce.Settings{NonEnvProcesses: true, EnvDevices: true, EnvMemory: true, MaxDevices: ptr(4), Warn: lasting(warned)}}
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

// disturb is what happens to the controller and to its policy.
func (d *day) disturb() {
	d.clean = 0
	saved, err := json.Marshal(d.memory.At(d.clock()))
	require.NoError(d.t, err)
	step := time.Duration(0)
	switch d.IntN(8) {
	case 0: // a restart after the clock was set
		step = time.Duration(d.IntN(7200)-3600) * time.Second
	case 1: // a restart
	case 2: // another leader, which has the memory of the cycle before
		if d.saved != nil {
			saved = d.saved
		}
	case 3:
		saved = []byte("{}")
	case 4: // a reload
		d.policy.all.EnvMemory = !d.policy.all.EnvMemory
		return
	case 5:
		d.exempt = d.now.Add(time.Duration(d.IntN(15)) * time.Minute)
		return
	case 6: // the host is off
		d.silent = d.now.Add(time.Duration(d.IntN(20)) * time.Minute)
		return
	default:
		d.happens()
		return
	}
	d.memory = controllerMemory{}
	require.NoError(d.t, json.Unmarshal(saved, &d.memory.Memory))
	d.memory.Memory, d.ahead = d.memory.Shifted(step), d.ahead+step
	d.memory.Resumed = true
}

// live is what people do in a minute.
func (d *day) live() {
	if d.IntN(3) == 0 {
		d.act(d.files.Environments[d.IntN(2)])
	}
	if e := d.files.Environments[d.IntN(2)]; d.IntN(8) == 0 && d.now.After(d.rest[e.UID]) {
		d.mistake(e)
	}
	for _, j := range slices.Clone(d.jobs) {
		mine := slices.Contains(d.knows[j.eid], snapshot.DeviceIndex(slices.Index(d.listed(), j.card)))
		j.titled = j.titled || j.eid != "" && mine && d.IntN(20) == 0
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
		d.fix[d.jobs[before]] = d.now.Add(time.Duration(d.IntN(warned-2)) * time.Minute)
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

// violate has carol use GPUs outside of environments: always another process, on any GPU, with pauses of one look.
func (d *day) violate() {
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
	host := snapshot.Host{Name: "a", Err: errDown, Round: round, AskedAt: d.clock(), IsNew: true}
	if view := d.look(true); view != nil && d.IntN(12) > 0 && !d.now.Before(d.silent) {
		view.Boot = booted.Add(d.ahead)
		host.Err, host.Snapshot = nil, view
	}
	if d.IntN(4) == 0 {
		d.now = d.now.Add(time.Duration(d.IntN(50)) * time.Second)
		d.live()
	}
	d.saved, _ = json.Marshal(d.memory.At(d.clock()))
	plan := d.memory.Judge(d.policy, snapshot.Cluster{Hosts: []snapshot.Host{host}}, d.clock())
	d.count(&host, &plan)
	for _, o := range plan.Orders {
		require.Empty(d.t, o.Order.Detach, plan.Findings)
		d.memory.Learn("a", o.Order, d.carryOut(&o.Order))
	}
	require.LessOrEqual(d.t, d.clean, warned+3, plan.Findings)
}

// count counts the minutes for which carol is there to be ended.
func (d *day) count(host *snapshot.Host, plan *enforce.Plan) {
	d.clean, d.unseen = d.clean+1, d.unseen+1
	if host.Snapshot == nil || d.now.Before(d.exempt) {
		d.clean = 0
		return
	}
	for i := range host.Snapshot.Processes {
		p := &host.Snapshot.Processes[i]
		if *p.UID != carol {
			continue
		}
		d.unseen = 0
		if index := p.Usage[0].Index; slices.Contains(plan.ExemptDevices["a"], index) || !host.Snapshot.Device(index).Judged() {
			d.clean = 0
		}
	}
	if d.unseen > 1 { // her pause was longer than an eighth of the warning
		d.clean = 0
	}
}

// carryOut does what a host does: it looks again first.
func (d *day) carryOut(o *order.Order) (outcomes []order.Outcome) {
	for _, x := range o.Terminate {
		outcome := order.Outcome{PID: x.Process.PID, EID: x.Process.EID, Status: order.StatusGone}
		at := slices.IndexFunc(d.jobs, func(j *job) bool { return j.pid == x.Process.PID })
		index := x.Process.Usage[0].Index
		switch listed := d.listed(); {
		case at < 0:
		case int(index) >= len(listed) || listed[index].uuid != o.GPUs[index],
			len(x.Unattached) > 0 && slices.Contains(d.files.AttachedTo(x.Process.EID), index):
			outcome.Status = order.StatusChanged
		default:
			require.Equal(d.t, carol, d.jobs[at].uid, x.Why)
			d.jobs, outcome.Status = slices.Delete(d.jobs, at, at+1), order.StatusTerminated
			d.clean = 0
			d.ended++
		}
		outcomes = append(outcomes, outcome)
	}
	return outcomes
}

// TestPropertyHonestPeopleLoseNothing: titles, mistakes that are put right in time, GPUs that move, clocks that are
// set, restarts, other leaders, silent and slow hosts, reloads and exemptions that end. Who violates a rule is ended
// within the warning and three intervals of the last disturbance.
func TestPropertyHonestPeopleLoseNothing(t *testing.T) {
	days, ended := proctest.Cases(200), 0
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
		ended += d.ended
	}
	require.Greater(t, ended, int(days), "carol's")
}
