package web_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/rules"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/web"
	"github.com/seed-3119e985/genv/snapshot"
)

// TestHostileNames: of users, environments, commands, containers, images, models, labels and warnings.
func TestHostileNames(t *testing.T) {
	for name, evil := range map[string]string{
		"markup":     `<script>alert(1)</script><img src=x onerror=alert(1)>`,
		"attribute":  `"><svg onload=alert(1)>' onmouseover='x`,
		"template":   "{{.Fleet}} ${x} `x` </textarea></title></script>",
		"escapes":    "\x1b[31mred\x1b]0;title\x07\n\r\n\tx\u202eevil\u200b\xff\xfe",
		"url":        "javascript:alert(1)",
		"path":       "../../api/v1/fleet?x#y%2f",
		"dots":       "..",
		"ten KB":     strings.Repeat("<b>&\"'", 1800),
		"diacritics": strings.Repeat("e\u0301\u0302\u0303", 500),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(1, 1)
			h := &f.round.Cluster.Hosts[0]
			s := machine(0, 1, f.now)
			h.Snapshot = s
			h.Labels = map[string]string{"room": evil, evil: "x"}
			s.Warnings = []string{evil}
			s.Devices[0].Name = evil
			s.Environments = []snapshot.Environment{{EID: "7", Username: snapshot.Username(evil), Config: snapshot.EnvConfig{Name: evil}}}
			s.Devices[0].Attachments = []snapshot.Attachment{{EID: "7"}}
			s.Processes = []snapshot.Process{{PID: 9, Username: snapshot.Username(evil), EID: snapshot.EnvID(evil), Command: evil, Container: evil, Usage: []snapshot.DeviceUsage{{Index: 0}}}}
			f.round.Number++
			f.round.Plan.Notes = []enforce.Note{{Host: "gpu-01", Text: evil}}
			f.judged(enforce.Finding{ID: evil, Rule: enforce.RuleNonEnvProcesses, Host: "gpu-01", PID: 9, EID: snapshot.EnvID(evil), User: snapshot.Username(evil), Command: evil, Container: evil, BlockedBy: evil, Pending: true, Stuck: []enforce.StuckProcess{{Reason: evil}}})
			handler := f.handler()
			for _, path := range []string{"/", "/h/gpu-01", "/findings", "/week", "/?q=" + "%3Cscript%3E"} {
				page := pageOf(t, handler, path)
				require.Less(t, len(page), 64<<10, "%s is bounded", path)
				if name != "template" && name != "url" && name != "path" && name != "dots" { // which are harmless as texts
					absent(t, page, evil, path)
				}
				for _, bad := range []string{"<script>", "<img src=x", "<svg onload", "</textarea>", "<b>", "\x1b", "\u202e", "\u200b", "href=\"javascript", "href=\"..", "\xff"} {
					absent(t, page, bad, path)
				}
				absent(t, page, "ZgotmplZ", path)
			}
		})
	}
}

// TestALotOfEverything: a host may report as much as it likes.
func TestALotOfEverything(t *testing.T) {
	f := newFleet(1, 1)
	s := &snapshot.Snapshot{}
	for i := range 2000 {
		user := snapshot.Username(fmt.Sprintf("user-%d", i))
		s.Devices = append(s.Devices, snapshot.Device{Index: snapshot.DeviceIndex(i), Name: fmt.Sprintf("model %d", i)})
		s.Devices[0].Attachments = append(s.Devices[0].Attachments, snapshot.Attachment{EID: snapshot.EnvID(user)})
		s.Environments = append(s.Environments, snapshot.Environment{EID: snapshot.EnvID(user), Username: user})
		s.Processes = append(s.Processes, snapshot.Process{PID: snapshot.PID(i + 1), Username: user, Usage: []snapshot.DeviceUsage{{Index: 0}}})
		s.Warnings = append(s.Warnings, "warning")
		f.round.Plan.Notes = append(f.round.Plan.Notes, enforce.Note{Text: "note"})
	}
	f.round.Cluster.Hosts[0].Snapshot = s
	findings := make([]enforce.Finding, 2000)
	for i := range findings {
		findings[i] = enforce.Finding{ID: fmt.Sprint(i), Rule: enforce.RuleNonEnvProcesses, Host: "gpu-01", PID: snapshot.PID(i + 1), User: "user-1"}
	}
	f.judged(findings...)
	handler := f.handler()
	for _, path := range []string{"/", "/h/gpu-01", "/u/user-1", "/findings"} {
		require.Less(t, len(pageOf(t, handler, path)), 640<<10, path)
	}
	present(t, pageOf(t, handler, "/h/gpu-01"), "and 1744 more GPUs", "")
	present(t, pageOf(t, handler, "/"), "and 1700 more", "")
	present(t, pageOf(t, handler, "/findings"), "and 1500 more", "")
}

// TestAFindingForEachProcess of a host that makes up very many: while its page is rendered, the others wait.
func TestAFindingForEachProcess(t *testing.T) {
	f := newFleet(1, 1)
	s := &snapshot.Snapshot{Devices: make([]snapshot.Device, 8)}
	findings := make([]enforce.Finding, 1<<15)
	for i := range findings {
		pid := snapshot.PID(i + 1)
		s.Devices[i%8].Index = snapshot.DeviceIndex(i % 8)
		s.Processes = append(s.Processes, snapshot.Process{PID: pid, Username: "mallory", Usage: []snapshot.DeviceUsage{{Index: snapshot.DeviceIndex(i % 8)}}})
		findings[i] = enforce.Finding{ID: fmt.Sprint(i), Rule: enforce.RuleNonEnvProcesses, Host: "gpu-01", PID: pid, User: "mallory"}
	}
	f.round.Cluster.Hosts[0].Snapshot = s
	f.judged(findings...)
	begun := time.Now()
	page := pageOf(t, f.handler(), "/")
	require.Less(t, time.Since(begun), 30*time.Second, "it took minutes")
	require.Equal(t, 8, strings.Count(page, `<i class="n">!</i>`)-1, "besides the legend")
}

// outside ends what runs in no environment.
type outside struct{ cap5 }

func (outside) Settings(enforce.Query) *enforce.Settings {
	return &enforce.Settings{NonEnvProcesses: true, Warn: enforce.Warn{}}
}

// TestCommandsThatHostsHide: operators see them on the control socket, and the page shows none.
func TestCommandsThatHostsHide(t *testing.T) {
	for _, hides := range []bool{false, true} {
		f := newFleet(1, 1)
		s := machine(0, 1, f.now)
		s.Processes = []snapshot.Process{
			{PID: 4000, Username: "alice", Command: "train --token=hunter2", Usage: []snapshot.DeviceUsage{{Index: 0}}},
			{PID: 4001, Username: "alice", Command: "train --token=hunter2", EnvUnknown: true, Usage: []snapshot.DeviceUsage{{Index: 0}}},
		}
		for i := range s.Processes {
			if hides {
				s.Processes[i].HideCommand()
			}
		}
		f.round.Cluster.Hosts[0].Snapshot = s
		plan, _, _ := rules.Judge(outside{}, f.round.Cluster, enforce.Memory{}, f.now)
		require.Len(t, plan.Findings, 1)
		require.Len(t, plan.Notes, 1)
		f.round.Plan = plan
		f.judged(plan.Findings...)
		for _, names := range []web.Names{web.AllNames, web.NoNames} {
			handler := f.handler(naming(names))
			for _, path := range []string{"/", "/h/gpu-01", "/u/alice", "/findings", "/week", "/reservations.ics", "/api/v1/fleet", "/api/v1/gpus", "/api/v1/findings", "/api/v1/hosts/gpu-01", "/api/v1/events"} {
				shown := strings.Contains(get(t, handler, path).Body.String(), "hunter2")
				without := slices.Contains([]string{"/", "/week", "/reservations.ics"}, path) // of any process
				require.Equal(t, !hides && names == web.AllNames && !without, shown, "%s %s", names, path)
			}
		}
		all := get(t, live.NewHandler(f.feed), "/api/v1/fleet").Body.String()
		require.Equal(t, 3, strings.Count(all, `"private_command":"train --token=hunter2"`)+strings.Count(all, `"command":"train --token=hunter2"`))
	}
}

// TestGuards: a host's page says what its guard does, if there is one, and what it denied.
func TestGuards(t *testing.T) {
	f := newFleet(6, 2)
	set := func(host int, g snapshot.Guard) {
		next := *f.round.Cluster.Hosts[host].Snapshot
		next.Guard, next.Service = &g, new(true)
		f.round.Cluster.Hosts[host].Snapshot = &next
	}
	set(0, snapshot.Guard{Mode: snapshot.GuardEnforce})
	set(1, snapshot.Guard{Mode: snapshot.GuardUnable, Reason: "kernel: <no BPF>"})
	no := false
	f.round.Cluster.Hosts[2].Snapshot.Service = &no
	f.round.Cluster.Hosts[2].Snapshot.Guard = &snapshot.Guard{Mode: snapshot.GuardOff}
	text := "users opened GPUs that are not attached to them, 3 times in the last hour"
	f.feed.Consume(&f.round, []enforce.Event{{
		Kind: enforce.EventGuard, Host: "gpu-01", Text: text,
	}})
	f.feed.Consume(f.round.AtEnd(), nil)
	handler := f.handler()

	page := pageOf(t, handler, "/h/gpu-01")
	presentAll(t, page, "gpu-01", "kernel guard: enforce", "root owns the state files", text)
	present(t, pageOf(t, handler, "/h/gpu-02"), `<p class="notice bad">Kernel guard: unable: kernel: &lt;no BPF&gt;</p>`, "gpu-02")
	for _, host := range []string{"/h/gpu-03", "/h/gpu-04"} {
		for _, word := range []string{"guard", "owns", "unknown:"} {
			absent(t, pageOf(t, handler, host), word, host)
		}
	}
	require.Contains(t, pageOf(t, handler, "/findings"), text)
}

// TestADeviceWithMIG: its utilization is unknown, and its instances are named.
func TestADeviceWithMIG(t *testing.T) {
	f := newFleet(1, 1)
	f.round.Cluster.Hosts[0].Snapshot = &snapshot.Snapshot{
		Environments: []snapshot.Environment{{EID: "7", UID: 1000, Username: "alice"}},
		Devices: []snapshot.Device{{
			UUID: "GPU-0", TotalMemory: snapshot.MiB(81559), UsedMemory: snapshot.MiB(87),
			Instances:   []snapshot.Instance{{UUID: "MIG-a", Profile: "1g.10gb"}, {UUID: "MIG-b"}},
			Attachments: []snapshot.Attachment{{EID: "7", Instances: []snapshot.GPUUUID{"MIG-a"}}},
		}},
		Processes: []snapshot.Process{{PID: 70, EID: "7", Username: "alice", Instances: []snapshot.GPUUUID{"MIG-b"}, Usage: []snapshot.DeviceUsage{{Index: 0}}}},
	}
	f.feed.Consume(f.round.AtEnd(), nil)
	page := pageOf(t, f.handler(), "/h/"+string(f.round.Cluster.Hosts[0].Name))
	presentAll(t, page, "the host", `data-label="Use" class="n">–<`, `data-label="State">busy<`, "<code>MIG-a</code></div>", "<code>MIG-b</code></div>")
	absent(t, page, `data-label="State">idle`, "the host")
}

func TestWhoLeads(t *testing.T) {
	for name, row := range map[string]struct {
		election election.StatusDocument
		want     string
	}{
		"it leads":     {election.StatusDocument{Role: election.Leading, Since: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), Epoch: 12}, "<p>this controller leads since 2026-11-20T12:00:00Z (epoch 12)</p>"},
		"a standby":    {election.StatusDocument{Role: election.Standby, Leader: "ann <b>"}, `standby; &#34;ann &lt;b&gt;&#34; leads`},
		"without etcd": {election.StatusDocument{Role: election.Expired, Error: "no answer"}, "this one only watches until etcd answers"},
	} {
		f := newFleet(2, 2)
		f.feed.Configure(live.Options{Now: func() time.Time { return f.now }, Enforcing: true, Election: func() *election.StatusDocument { return &row.election }})
		f.feed.Consume(f.round.AtEnd(), nil)
		require.Contains(t, get(t, f.handler(), "/").Body.String(), row.want, name)
	}
}
