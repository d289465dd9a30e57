package web_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/web"
	"github.com/seed-3119e985/genv/snapshot"
)

// users of the fleets of these tests.
var users = []snapshot.Username{"alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy", "mallory", "niaj"}

var models = []string{"NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 4090", "NVIDIA L40S"}

// fleet is a fleet with a clock.
type fleet struct {
	feed  *live.Feed
	now   time.Time
	round controller.Round
	usage *usage.Reader // nil for none
}

// cap5 lets each user have five GPUs.
type cap5 struct{}

func (cap5) Settings(enforce.Query) *enforce.Settings {
	return &enforce.Settings{MaxDevices: new(5)}
}

func (cap5) Exempt(enforce.Subject) (string, bool) { return "", false }

func (cap5) ReservationRule(snapshot.Username) (*snapshot.ReservationRule, bool) { return nil, true }
func (cap5) Caps(time.Time) []*enforce.Cap                                       { return nil }
func (cap5) ExemptIndices(snapshot.Hostname) []enforce.ExemptGPU                 { return nil }
func (cap5) Account(user snapshot.Username) snapshot.Username                    { return user }
func (cap5) Names(snapshot.Username) bool                                        { return false }
func (cap5) Fleet() enforce.Fleet                                                { return enforce.Fleet{} }

// newFleet is a fleet after its first cycle. Each seventeenth host fails.
func newFleet(hosts, gpus int) *fleet { return fleetAt(time.Now(), hosts, gpus) }

// fleetAtNoon is for what counts days: soon after midnight one has no row yet, and a week has hours of nine.
func fleetAtNoon(hosts, gpus int) *fleet {
	now := time.Now()
	return fleetAt(time.Date(now.Year(), now.Month(), now.Day(), 12, 0, 0, 0, time.Local), hosts, gpus)
}

func fleetAt(now time.Time, hosts, gpus int) *fleet {
	f := &fleet{now: now}
	f.feed = live.NewFeed(live.Options{Now: func() time.Time { return f.now }, Interval: 10 * time.Second, Enforcing: true, Policy: cap5{}})
	f.round = controller.Round{Run: "run-1", Number: 1, Start: f.now, Took: time.Second}
	for i := range hosts {
		h := snapshot.Host{Name: snapshot.Hostname(fmt.Sprintf("gpu-%02d", i+1))}
		if i%17 == 5 {
			h.Err = remote.Errorf(remote.Unreachable, "dial tcp 10.0.3.%d:22: connect: connection refused", i%250)
		} else {
			h.Snapshot = machine(i, gpus, f.now)
		}
		f.round.Cluster.Hosts = append(f.round.Cluster.Hosts, h)
	}
	f.feed.Consume(f.round.AtEnd(), nil)
	return f
}

// machine is a host on which users do this and that.
func machine(number, gpus int, now time.Time) *snapshot.Snapshot {
	s := &snapshot.Snapshot{}
	for i := range gpus {
		used, utilization, temperature, power := int64(0), 0, 34+i, 61.5
		d := snapshot.Device{
			Index: snapshot.DeviceIndex(i), UUID: snapshot.GPUUUID(fmt.Sprintf("GPU-%d-%d", number, i)), Name: models[number/7%len(models)],
			TotalMemory: snapshot.MiB(81920), Utilization: &utilization, Temperature: &temperature, Power: &power,
		}
		user, kind := users[(number*3+i/2)%len(users)], (number*5+i*3)%8
		eid := snapshot.EnvID(fmt.Sprint(1000 + i))
		if kind < 6 {
			s.Environments = append(s.Environments, snapshot.Environment{EID: eid, UID: 1000, Username: user, Config: snapshot.EnvConfig{Name: "train"}})
			d.Attachments = []snapshot.Attachment{{EID: eid, Time: date(now.Add(-time.Duration(i+1) * 47 * time.Minute))}}
		}
		if kind < 4 {
			used, utilization, temperature, power = 61<<10, 97-i, 71, 640
			s.Processes = append(s.Processes, snapshot.Process{
				PID: snapshot.PID(4000 + i), Username: user, EID: eid, Name: "python", Command: "python train.py --config configs/large.yaml --seed 7",
				Usage: []snapshot.DeviceUsage{{Index: d.Index, Memory: snapshot.MiB(61 << 10)}},
			})
		}
		if d.UsedMemory = snapshot.MiB(used); kind == 7 && number%5 == 0 {
			d.UsedMemory = snapshot.MiB(9 << 10) // of no visible process
		}
		s.Devices = append(s.Devices, d)
	}
	return s
}

func date(t time.Time) snapshot.Date {
	d, err := snapshot.ParseDate(t.Format("02/01/2006 15:04:05"))
	if err != nil {
		panic(err)
	}
	return d
}

// judged adds findings and their history.
func (f *fleet) judged(findings ...enforce.Finding) {
	f.round.Plan.Findings = findings
	f.round.Exemptions = policy.ExemptionList{{Who: policy.Who{User: "judy", Host: "gpu-04"}, Reason: "paper deadline", By: "root", Created: f.now, Until: f.now.Add(5 * time.Hour)}}
	events := make([]enforce.Event, 0, len(findings))
	for i := range findings {
		events = append(events, enforce.Event{Kind: enforce.EventNew, Host: findings[i].Host, ID: findings[i].ID, Finding: &findings[i], Decision: findings[i].Decision()})
		if findings[i].PID == 0 {
			continue
		}
		process := snapshot.Process{PID: findings[i].PID, Username: findings[i].User, Command: findings[i].Command}
		events = append(events, enforce.Event{
			Kind: enforce.EventOutcome, Host: findings[i].Host, Findings: findings[i : i+1],
			Order: &order.Order{ID: "report-" + findings[i].ID, Terminate: []order.Termination{{
				Process: process, Reasons: order.Reasons{
					Because: []string{findings[i].ID}, Why: []string{findings[i].Line()}, Judged: []string{fmt.Sprintf("process %d, GPU 0: 2 GiB", findings[i].PID)},
				},
			}}},
			Outcomes: []order.Outcome{{PID: findings[i].PID, Status: order.StatusTerminated}},
		})
	}
	events = append(events, enforce.Event{Kind: enforce.EventHostLost, Host: "gpu-06", Err: errors.New("dial tcp: connection refused")})
	f.feed.Consume(&f.round, events)
	f.feed.Consume(f.round.AtEnd(), nil)
}

// usual are findings as they come.
func usual(now time.Time) []enforce.Finding {
	return []enforce.Finding{
		{ID: "1", Rule: enforce.RuleNonEnvProcesses, Host: "gpu-01", PID: 4000, User: "alice", Command: "python notebook.py", Since: now.Add(-90 * time.Second), Cycles: 9, Terminate: []enforce.ProcessRef{{Host: "gpu-01", PID: 4000}}},
		{ID: "2", Rule: enforce.RuleMaxDevicesPerUser, User: "bob", Count: &enforce.CountExcess{Used: 7, Limit: 5, Hosts: 3}, Since: now.Add(-10 * time.Minute), Pending: true, Due: now.Add(20 * time.Minute), Detach: []enforce.DeviceRef{{Host: "gpu-02", Index: 1, EID: "1001"}}},
		{ID: "3", Rule: enforce.RuleIdle, Host: "gpu-03", User: "carol", EID: "1004", Devices: []snapshot.DeviceIndex{4}, For: 5 * time.Hour, Limit: 4 * time.Hour, Since: now.Add(-time.Hour), Pending: true, Due: now.Add(2 * time.Hour)},
	}
}

// lived lets a day pass, with a break.
func (f *fleet) lived() {
	end := f.now.Add(24 * time.Hour)
	for i := range 24 * 60 {
		if f.now = end.Add(time.Duration(i-24*60) * time.Minute); i > 300 && i < 420 {
			continue
		}
		for h := range f.round.Cluster.Hosts {
			if s := f.round.Cluster.Hosts[h].Snapshot; s != nil && i%97 == 0 {
				f.round.Cluster.Hosts[h].Snapshot = machine(h+i/97, len(s.Devices), f.now)
			}
		}
		f.round.Number, f.round.Start = f.round.Number+1, f.now
		f.feed.Consume(f.round.AtEnd(), nil)
	}
	f.now = end
	for h := range f.round.Cluster.Hosts {
		if s := f.round.Cluster.Hosts[h].Snapshot; s != nil {
			f.round.Cluster.Hosts[h].Snapshot = machine(h, len(s.Devices), f.now)
		}
	}
	f.round.Start = end
	f.feed.Consume(f.round.AtEnd(), nil)
}

// options are those of loopback.
func (f *fleet) options() web.Options {
	return web.Options{
		Now: func() time.Time { return f.now }, Names: web.AllNames, Hosts: []string{"gpus.example.org"},
		Failed: func(err error) { panic(err) },
	}
}

// handler is that of the options, changed.
func (f *fleet) handler(change ...func(*web.Options)) http.Handler {
	options := f.options()
	for _, c := range change {
		c(&options)
	}
	return web.New(f.feed, options)
}

// naming shows the names that it says.
func naming(names web.Names) func(*web.Options) { return func(o *web.Options) { o.Names = names } }

// get asks for a page.
func get(t *testing.T, handler http.Handler, path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "http://localhost"+path, http.NoBody)
	r.Header.Set("Accept", "text/html")
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

// pageOf is the text of a page that must be there.
func pageOf(t *testing.T, handler http.Handler, path string, change ...func(*http.Request)) string {
	t.Helper()
	w := get(t, handler, path, change...)
	require.Equal(t, http.StatusOK, w.Code, "%s: %s", path, w.Body)
	require.True(t, strings.HasSuffix(strings.TrimSpace(w.Body.String()), "</html>"), "%s is cut off", path)
	return w.Body.String()
}
