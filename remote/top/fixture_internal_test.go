package top

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func of[T any](v T) *T { return &v }

// gpu has a state, with what belongs to that.
func gpu(index int, state gpus.State, users ...string) gpus.GPU {
	g := gpus.GPU{
		Index: snapshot.DeviceIndex(index), UUID: snapshot.GPUUUID(fmt.Sprintf("GPU-%d", index)), Model: "NVIDIA A100-SXM4-80GB", Driver: "550.163.01", State: state,
		MemoryTotal: of(int64(80 << 30)), MemoryUsed: of(int64(0)), Utilization: of(0), Temperature: of(31), Power: of(62.4),
		Attached: []gpus.Attachment{}, Processes: []gpus.Process{},
	}
	if state == gpus.Unknown {
		g.MemoryUsed, g.Utilization, g.Temperature, g.Power = nil, nil, nil, nil
	}
	for i, user := range users {
		g.Attached = append(g.Attached, gpus.Attachment{EID: snapshot.EnvID(fmt.Sprint(1000 + index)), Name: "train", User: snapshot.Username(user), Since: noon.Add(-3 * time.Hour)})
		if state == gpus.Busy || state == gpus.Idle {
			g.Processes = append(g.Processes, gpus.Process{
				PID: snapshot.PID(4000 + 10*index + i), Start: 880123, User: snapshot.Username(user), Command: "/usr/bin/python train.py --epochs 90", Memory: of(int64(24 << 30)),
			})
			*g.MemoryUsed += 24 << 30
		}
	}
	if state == gpus.Busy {
		*g.Utilization, *g.Temperature, *g.Power = 97, 68, 391
	}
	return g
}

// sample is a fleet in which there is one of everything.
func sample() *live.FleetState {
	lost := &remote.Failure{Host: "gpu-4", Class: remote.Unreachable, Error: "dial tcp 10.0.0.4:22: connect: no route to host", NextStep: "Check the network and that the host is up: ping gpu-4"}
	f := &live.FleetState{
		Schema: "genv.live.fleet/1", Revision: 7, Run: "run", Cycle: 41, Time: noon.Add(-2 * time.Second), Took: 0.4, Interval: 10, Enforcing: true,
		Hosts: []live.FleetHost{
			{Name: "gpu-1", Labels: map[string]string{"rack": "r1"}, Seen: noon.Add(-2 * time.Second), GPUs: []gpus.GPU{
				gpu(0, gpus.Busy, "alice"), gpu(1, gpus.Busy, "alice"), gpu(2, gpus.Idle, "bob"), gpu(3, gpus.Attached, "carol"),
				gpu(4, gpus.Free), gpu(5, gpus.Free), gpu(6, gpus.Free), gpu(7, gpus.Unknown),
			}},
			{Name: "gpu-2", Seen: noon.Add(-2 * time.Second), GPUs: []gpus.GPU{gpu(0, gpus.Busy, "bob"), gpu(1, gpus.Busy, "bob", "dave")}},
			{Name: "gpu-3", Seen: noon.Add(-2 * time.Second), GPUs: []gpus.GPU{gpu(0, gpus.Free), gpu(1, gpus.Free)}},
			{Name: "gpu-4", Seen: noon.Add(-5 * time.Minute), Failure: lost, GPUs: []gpus.GPU{gpu(0, gpus.Unknown), gpu(1, gpus.Unknown)}},
			{Name: "gpu-5", Failure: &remote.Failure{Host: "gpu-5"}, GPUs: []gpus.GPU{}},
		},
		Users: []live.FleetUser{
			{Name: "alice", Hosts: 1, Attached: 2, Used: 2, Memory: 48 << 30, Cap: of(4)},
			{Name: "bob", Hosts: 2, Attached: 3, Idle: 1, Used: 3, Memory: 72 << 30, Cap: of(2), Findings: 1},
			{Name: "carol", Hosts: 1, Attached: 1, Idle: 1, Cap: of(1)},
			{Name: "dave", Hosts: 1, Attached: 1, Used: 1, Memory: 24 << 30},
		},
		Findings: []live.Finding{
			finding("f1", "gpu-2", "dave", 4011, enforce.DecisionAct, "Process 4011 is not running in a GPU environment of user dave: python train.py"),
			finding("f2", "", "bob", 0, enforce.DecisionWait, "User bob is using 3 devices on 2 hosts which is 1 more than the maximum allowed"),
		},
		Failed: []remote.Failure{*lost, {Host: "gpu-5", Class: remote.HostKeyChanged, Error: "the host key has changed", NextStep: "Find out why before you trust it"}},
	}
	f.Exemptions = policy.ExemptionList{{Who: policy.Who{User: "carol"}, Reason: "deadline", By: "root (uid 0)", Created: noon, Until: noon.Add(8 * time.Hour)}}
	f.Findings[1].Rule, f.Findings[1].Due = enforce.RuleMaxDevicesPerUser, noon.Add(4*time.Minute)
	return f
}

func finding(id, host, user string, pid snapshot.PID, decision enforce.Decision, line string) live.Finding {
	return live.Finding{
		Finding: enforce.Finding{
			ID: id, Rule: enforce.RuleNonEnvProcesses, Host: snapshot.Hostname(host), User: snapshot.Username(user), PID: pid,
			Since: noon.Add(-90 * time.Second), Command: "python train.py",
		},
		Line: line, Decision: decision,
	}
}

func sampleEvents() []live.FleetEvent {
	return []live.FleetEvent{
		{Number: 1, Time: noon.Add(-26 * time.Hour), Kind: enforce.EventHostLost, Host: "gpu-4", Text: "no route to host"},
		{Number: 2, Time: noon.Add(-90 * time.Second), Kind: enforce.EventNew, Host: "gpu-2", User: "dave", PID: 4011, Rule: enforce.RuleNonEnvProcesses, Decision: enforce.DecisionWait, Text: "Process 4011 is not running in a GPU environment"},
		{Number: 3, Time: noon.Add(-2 * time.Second), Kind: enforce.EventOutcome, Host: "gpu-2", User: "dave", PID: 4011, Status: "terminated", Text: "process 4011: terminated"},
	}
}

// silent is a Next with nothing more.
func silent(ctx context.Context) (Update, error) {
	<-ctx.Done()
	return Update{}, ctx.Err()
}

// viewed is a Model that shows a fleet on a screen of a size.
func viewed(t testing.TB, fleet *live.FleetState, width, height int) *Model {
	t.Helper()
	m := newModel(context.Background(), Options{Next: silent, Now: func() time.Time { return noon }})
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	m.update(fleet, sampleEvents()...)
	return m
}

func (m *Model) update(fleet *live.FleetState, events ...live.FleetEvent) {
	m.take(&Update{Fleet: fleet, Events: events, Origin: "controller"}, nil)
	m.Update(nil)
}

// press presses keys: names, characters, or texts that are typed.
func (m *Model) press(keys ...string) (last tea.Cmd) {
	named := map[string]tea.Key{
		"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "down": {Code: tea.KeyDown}, "up": {Code: tea.KeyUp}, "tab": {Code: tea.KeyTab},
		"pgdown": {Code: tea.KeyPgDown}, "pgup": {Code: tea.KeyPgUp}, "backspace": {Code: tea.KeyBackspace}, "left": {Code: tea.KeyLeft}, "right": {Code: tea.KeyRight},
		"space": {Code: tea.KeySpace, Text: " "}, "ctrl+c": {Code: 'c', Mod: tea.ModCtrl}, "ctrl+u": {Code: 'u', Mod: tea.ModCtrl},
	}
	for _, name := range keys {
		if name == "" {
			continue
		}
		key, special := named[name]
		if !special {
			key = tea.Key{Code: []rune(name)[0], Text: name}
		}
		_, last = m.Update(tea.KeyPressMsg(key))
	}
	return last
}

// screen is what a terminal would show.
func (m *Model) screen() (lines []string) {
	for _, line := range m.frame() {
		lines = append(lines, ansi.Strip(line))
	}
	return lines
}

// large is a fleet of 1,000 hosts with 8 GPUs, all of which are used.
func large() *live.FleetState {
	f := sample()
	f.Hosts = nil
	for i := range 1000 {
		h := live.FleetHost{Name: snapshot.Hostname(fmt.Sprintf("gpu-%04d", i)), Seen: noon}
		for j := range 8 {
			h.GPUs = append(h.GPUs, gpu(j, gpus.Busy, fmt.Sprintf("user%d", (i*8+j)%200)))
		}
		f.Hosts = append(f.Hosts, h)
	}
	return f
}

// BenchmarkUpdate is a change of 1,000 hosts and its frame.
func BenchmarkUpdate(b *testing.B) {
	for tab, keys := range map[string][]string{"hosts": {"1"}, "hosts sorted by free": {"1", "s", "s", "s"}, "GPUs": {"2"}, "processes": {"5"}, "filtered": {"2", "/", "user=user7 util>5", "enter"}} {
		b.Run(tab, func(b *testing.B) {
			f := large()
			m := viewed(b, f, 120, 40)
			m.press(keys...)
			b.ReportAllocs()
			for b.Loop() {
				m.update(f)
				_ = m.View()
			}
		})
	}
}

// BenchmarkDecode is what a viewer of a socket needs for the document of 1,000 hosts.
func BenchmarkDecode(b *testing.B) {
	data, err := json.Marshal(large())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if err := json.Unmarshal(data, new(live.FleetState)); err != nil {
			b.Fatal(err)
		}
	}
}
