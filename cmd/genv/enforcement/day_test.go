package enforcement

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

const (
	dayHosts  = 33
	dayCycles = 24 * 120
)

// day is a simulated fleet of 33 hosts over 24 hours.
type day struct {
	t     *testing.T
	begin time.Time // in the bubble

	mu     sync.Mutex
	hosts  map[string]*dayHost
	script []dayEvent // by time
	loop   *loop
	policy string
}

type dayHost struct {
	snapshot *snapshot.Snapshot
	err      *remote.Error
	stubborn map[snapshot.PID]bool // ignore SIGTERM
	hanging  map[snapshot.PID]bool // don't end by SIGKILL either
	cut      bool                  // the connection breaks in an order
}

type dayEvent struct {
	at   time.Duration
	what func()
}

// at has something happen at a time of the day, as in "02:14".
func (d *day) at(clock string, what func()) {
	at, err := time.Parse("15:04:05", clock)
	if err != nil {
		at, err = time.Parse("15:04", clock)
	}
	require.NoError(d.t, err)
	d.script = append(d.script, dayEvent{at.Sub(at.Truncate(24 * time.Hour)), what})
}

func dayName(n int) string { return fmt.Sprintf("gpu-%02d.lab", n) }

// openDay is a fleet on which nothing happens: each host has eight GPUs, and alice's honest job on one.
func openDay(t *testing.T) *day {
	d := &day{t: t, begin: time.Now(), hosts: make(map[string]*dayHost)}
	for n := 1; n <= dayHosts; n++ {
		s := &snapshot.Snapshot{BootID: fmt.Sprint("boot-", n)}
		for i := range 8 {
			s.Devices = append(s.Devices, snapshot.Device{Index: snapshot.DeviceIndex(i), TotalMemory: snapshot.MiB(81559)})
		}
		d.hosts[dayName(n)] = &dayHost{snapshot: s, stubborn: make(map[snapshot.PID]bool), hanging: make(map[snapshot.PID]bool)}
		if n <= 4 {
			d.attach(n, 1000, "alice", 0)
			d.start(n, 500, 1000, "alice", "1000", 0, "python train.py")
		}
	}
	return d
}

// attach gives a user an environment with devices.
func (d *day) attach(host int, uid snapshot.UID, user snapshot.Username, devices ...int) {
	s := d.change(host)
	created := snapshot.DateOf(dayStart)
	eid := snapshot.EnvID(fmt.Sprint(uid))
	if !slices.ContainsFunc(s.Environments, func(e snapshot.Environment) bool { return e.EID == eid }) {
		s.Environments = append(s.Environments, snapshot.Environment{EID: eid, UID: uid, Username: user, Creation: created, PIDs: []snapshot.PID{1}})
	}
	for _, i := range devices {
		s.Devices[i].Attachments = append(s.Devices[i].Attachments, snapshot.Attachment{EID: eid, Time: created})
	}
}

func (d *day) start(host int, pid snapshot.PID, uid snapshot.UID, user snapshot.Username, eid snapshot.EnvID, device int, cmd string) {
	s := d.change(host)
	s.Processes = append(s.Processes, snapshot.Process{
		PID: pid, Start: snapshot.StartTime(pid), UID: &uid, Username: user, EID: eid, Command: cmd,
		Usage: []snapshot.DeviceUsage{{Index: snapshot.DeviceIndex(device), Memory: snapshot.MiB(1000)}},
	})
}

func (d *day) end(host int, pid snapshot.PID) {
	s := d.change(host)
	s.Processes = slices.DeleteFunc(s.Processes, func(p snapshot.Process) bool { return p.PID == pid })
}

// fail has hosts fail; with an empty text they answer again.
func (d *day) fail(class remote.Class, text string, hosts ...int) {
	for _, n := range hosts {
		h := d.hosts[dayName(n)]
		h.err = nil
		if text != "" {
			h.err = remote.Errorf(class, "%s", strings.ReplaceAll(text, "ADDRESS", fmt.Sprintf("10.0.0.%d:22", n)))
		}
	}
}

// Snapshot implements controller.Link.
func (d *day) Snapshot(_ context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	if host.Name == dayName(22) {
		time.Sleep(1500 * time.Millisecond)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.script) > 0 && time.Since(d.begin) >= d.script[0].at {
		d.script[0].what()
		d.script = d.script[1:]
	}
	h := d.hosts[host.Name]
	if h.err != nil {
		return nil, h.err
	}
	return h.snapshot, nil
}

// change is a copy of a host's snapshot, which may be read while it changes.
func (d *day) change(host int) *snapshot.Snapshot {
	h := d.hosts[dayName(host)]
	s := *h.snapshot
	s.Processes, s.Environments = slices.Clone(s.Processes), slices.Clone(s.Environments)
	s.Devices = slices.Clone(s.Devices)
	for i := range s.Devices {
		s.Devices[i].Attachments = slices.Clone(s.Devices[i].Attachments)
	}
	h.snapshot = &s
	return &s
}

// Execute implements controller.Link.
func (d *day) Execute(_ context.Context, host remote.Host, o order.Order) (agent.Execution, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.hosts[host.Name]
	if h.cut {
		h.cut = false
		return agent.Execution{}, remote.Errorf(remote.OutcomeUnknown, "the connection was lost while the order was carried out")
	}
	done := agent.Execution{Outcomes: []order.Outcome{}}
	for _, detach := range o.Detach {
		dev := &d.change(hostNumber(host.Name)).Devices[detach.Device]
		dev.Attachments = slices.DeleteFunc(dev.Attachments, func(a snapshot.Attachment) bool { return a.EID == detach.Environment.EID })
		done.Lines = append(done.Lines, detach.String())
		done.Outcomes = append(done.Outcomes, order.Outcome{Device: detach.Device, EID: detach.Environment.EID, Status: order.StatusDetached})
	}
	for _, t := range o.Terminate {
		pid := t.Process.PID
		outcome := order.Outcome{PID: pid, EID: t.Process.EID, Status: order.StatusTerminated}
		switch {
		case h.hanging[pid] && o.Kill:
			outcome.Status, outcome.Reason = order.StatusSurvived, "SIGKILL did not end it: it hangs in the kernel (state D)"
		case h.stubborn[pid] || h.hanging[pid]:
			outcome.Status, outcome.Reason = order.StatusSurvived, "SIGTERM did not end it within 10s"
		default:
			d.end(hostNumber(host.Name), pid)
		}
		done.Lines = append(done.Lines, t.String())
		done.Outcomes = append(done.Outcomes, outcome)
	}
	return done, nil
}

func hostNumber(name string) (n int) {
	_, _ = fmt.Sscanf(name, "gpu-%d.lab", &n)
	return n
}

// Notify implements controller.Link.
func (d *day) Notify(_ context.Context, _ remote.Host, messages []agent.Message) ([]agent.Receipt, error) {
	return make([]agent.Receipt, len(messages)), nil
}

// Guard implements controller.Link.
func (d *day) Guard(context.Context, remote.Host, agent.GuardRequest) (agent.GuardAnswer, error) {
	return agent.GuardAnswer{}, agent.ErrCannotGuard
}

// About implements controller.Link.
func (d *day) About(remote.Host) agent.About { return agent.About{} }

// dayStart is a midnight in the zone of the machine, so that the lines are the same in each.
var dayStart = time.Date(2026, 11, 20, 0, 0, 0, 0, time.Local)

const dayPolicy = `defaults:
  non-env-processes: true
  max-devices-per-user: 4
  warn: {for: 10m}
overrides:
  - hosts: [gpu-06.lab]
    set: {kill: true}
limits: {max-terminations: 6}
`

// write has the day happen.
func (d *day) write() {
	all := make([]int, 0, dayHosts)
	for n := 1; n <= dayHosts; n++ {
		all = append(all, n)
	}
	const noRoute = "no connection to ADDRESS: dial tcp ADDRESS: connect: no route to host"
	d.fail(remote.Timeout, "no answer within 10s", 17) // one host is always broken
	d.at("02:14", func() { d.fail(remote.Unreachable, noRoute, 3, 7, 8, 9, 10, 11, 12) })
	d.at("02:26", func() { d.fail("", "", 3, 7, 8, 9, 10, 11, 12) })
	d.at("03:05", func() { d.start(20, 4711, 1007, "mallory", "", 3, "./miner") })
	d.at("04:10", func() { d.start(21, 4800, 1002, "bob", "", 0, "python eval.py") })
	d.at("04:15", func() { d.end(21, 4800) }) // bob has read the message
	for minute := 5 * 60; minute < 9*60; minute += 4 {
		d.at(fmt.Sprintf("%02d:%02d", minute/60, minute%60), func() { d.fail(remote.Unreachable, noRoute, 31) })
		d.at(fmt.Sprintf("%02d:%02d:30", minute/60, minute%60), func() { d.fail("", "", 31) })
	}
	d.at("06:20", func() {
		d.hosts[dayName(5)].stubborn[5100] = true
		d.start(5, 5100, 1002, "bob", "", 1, "python train.py --ignore-sigterm")
	})
	d.at("07:20", func() {
		d.hosts[dayName(6)].hanging[6100] = true
		d.start(6, 6100, 1003, "carol", "", 2, "python load.py")
	})
	d.at("09:55", func() { d.start(24, 7100, 1007, "mallory", "", 3, "./miner") })
	eve := operator.Author{UID: 2000, Name: "eve"}
	do := func(kind operator.ActionKind, reason string) {
		time.AfterFunc(500*time.Millisecond, func() { // not when answers come: their order would be by chance
			_, err := d.loop.queue.Do(d.t.Context(), eve, operator.Action{Schema: operator.ActionSchema, Kind: kind, Reason: reason})
			if err != nil {
				d.t.Error(err)
			}
		})
	}
	d.at("10:00", func() { do(operator.Hold, "new driver on gpu-24") })
	d.at("10:40", func() { do(operator.Release, "it works") })
	d.at("12:50", func() {
		d.attach(25, 1004, "dave", 0, 1)
		d.attach(26, 1004, "dave", 0)
	})
	d.at("13:00", func() {
		d.policy = strings.Replace(dayPolicy, "per-user: 4", "per-user: 2", 1)
		d.loop.service.hangup <- syscall.SIGHUP
	})
	d.at("15:00", func() { d.fail(remote.HostKeyChanged, "the host key has changed: SHA256:abc", 17) })
	d.at("16:00", func() {
		for pid := range 9 {
			d.start(28, snapshot.PID(8000+pid), 1005, "frank", "", pid%8, "python sweep.py")
		}
	})
	d.at("16:30", func() {
		for pid := range 9 {
			d.end(28, snapshot.PID(8000+pid))
		}
	})
	for i := range 10 { // a job array that starts a process every 90 s
		clock := fmt.Sprintf("18:%02d:%02d", i*90/60, i*90%60)
		d.at(clock, func() {
			d.end(29, snapshot.PID(9000+i-1))
			d.start(29, snapshot.PID(9000+i), 1006, "grace", "", 4, "python step.py")
		})
	}
	d.at("18:15", func() { d.end(29, 9009) })
	d.at("20:00", func() {
		d.fail(remote.Unreachable, noRoute, slices.DeleteFunc(all, func(n int) bool { return n == 17 })...)
	})
	d.at("20:03", func() { d.fail("", "", slices.DeleteFunc(all, func(n int) bool { return n == 17 || n == 0 })...) })
	d.at("22:00", func() {
		d.hosts[dayName(33)].cut = true
		d.start(33, 9900, 1007, "mallory", "", 3, "./miner")
	})
	d.at("22:30", func() { d.end(5, 5100) })
	slices.SortStableFunc(d.script, func(a, b dayEvent) int { return int(a.at - b.at) })
}

// run runs the real loop over the day, as on a terminal, and returns what it prints.
func (d *day) run() string {
	var screen bytes.Buffer
	offset := dayStart.Sub(d.begin)
	p := &command.Program{Out: &screen, Err: &screen, Getenv: func(string) string { return "" }, Now: func() time.Time { return time.Now().Add(offset) }}
	d.policy = dayPolicy
	read := func() (Options, error) {
		file, err := policy.Parse("policy.yaml", []byte(d.policy))
		options := Options{
			Policy: file, Interval: 30 * time.Second, Cycles: dayCycles, Format: "tui",
			ActUnrecorded: true, Timestamps: "always", Summary: 6 * time.Hour,
			Link: d, Fanout: dayHosts, CycleLimit: time.Minute, Progress: &render.Progress{},
		}
		for n := 1; n <= dayHosts; n++ {
			options.Hosts = append(options.Hosts, remote.Host{Name: dayName(n)})
		}
		return options, err
	}
	options := proctest.Try(read()).OK(d.t)
	d.loop = newLoop(p, zerolog.Nop(), &options, read)
	_ = d.loop.run(d.t.Context(), options) // its exit code is that of the last cycle
	return screen.String()
}

// TestADayOfALoop: a day of a loop is read in a minute.
func TestADayOfALoop(t *testing.T) {
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, syscall.SIGUSR2) // has the runtime's goroutine for signals start outside of the bubble
	signal.Stop(ignored)
	t.Setenv("GOGC", "400") // which startService leaves as it is; the fleet is small, and the day is long
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	var got string
	synctest.Test(t, func(t *testing.T) {
		d := openDay(t)
		d.write()
		got = d.run()
	})
	const golden = "testdata/day.txt"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	require.Equal(t, proctest.ReadText(t, golden), got)
	require.LessOrEqual(t, strings.Count(got, "\n"), 150, "it takes a minute to read")
}
