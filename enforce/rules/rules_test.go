package rules_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// The tables are written in a small language of their own, one host a line:
//
//	gpu-1 | env 10 alice 4g | env 20 bob | dev 0 10@1 20@2 | proc 500 10 0:3000 1:200
//
// env EID USER [CAPACITY], dev INDEX [EID@[HOUR:]MINUTE …] (or EID~MINUTE, if root's looks don't show it), proc PID EID
// INDEX:MIB …; EID "-" is none, "?" unknown, MIB "?" unknown. A host that is "down" failed. A device is unidentified
// with the word "who?". env and proc may have u1001 for a uid (of env, what the state file says; of proc, what the
// kernel says), and proc by:USER, started-at:HOUR, in:CONTAINER, from:EID (the environment of an ancestor); EID "!" is
// unknown since overwritten. After INDEX:MIB may come a type, as in 0:25:C+G; a device with an active display says
// screen. After the index of a device model:A100 is its model, u7 is a utilization of 7 per cent, and m? a memory that
// is not known, and p? processes that the driver doesn't report; failed and unified are what they say.
func parseCluster(t *testing.T, text string) snapshot.Cluster {
	var c snapshot.Cluster
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		parts := strings.Split(line, "|")
		h := snapshot.Host{Name: snapshot.Hostname(strings.TrimSpace(parts[0])), Snapshot: &snapshot.Snapshot{Boot: booted, FirstUID: new(snapshot.UID(1000))}}
		for _, part := range parts[1:] {
			words := strings.Fields(part)
			switch words[0] {
			case "down":
				h.Snapshot, h.Err = nil, errDown
			case "boot":
				h.Snapshot.BootID = words[1]
			case "env":
				parseEnv(t, h.Snapshot, words[1:])
			case "dev":
				parseDevice(t, h.Snapshot, words[1:])
			case "proc":
				parseProcess(t, h.Snapshot, words[1:])
			default:
				t.Fatalf("no such word: %s", words[0])
			}
		}
		c.Hosts = append(c.Hosts, h)
	}
	return c
}

// booted is when all hosts were.
var booted = time.Date(2026, 11, 19, 0, 0, 0, 0, time.UTC)

// sinceBoot is a date, in UTC, as root's looks have it.
func sinceBoot(d snapshot.Date) snapshot.StartTime {
	return snapshot.StartTime(d.In(time.UTC).Sub(booted) / (10 * time.Millisecond))
}

func parseEnv(t *testing.T, s *snapshot.Snapshot, words []string) {
	e := snapshot.Environment{EID: snapshot.EnvID(words[0]), Username: snapshot.Username(strings.Trim(words[1], "-"))}
	for _, word := range words[2:] {
		if uid, ok := strings.CutPrefix(word, "u"); ok {
			e.UID = snapshot.UID(number(t, uid))
			continue
		}
		e.Config.GPUMemory = snapshot.MustMemory(word)
	}
	s.Environments = append(s.Environments, e)
}

func parseDevice(t *testing.T, s *snapshot.Snapshot, words []string) {
	d := snapshot.Device{Index: index(t, words[0]), TotalMemory: snapshot.MiB(81559)}
	for _, word := range words[1:] {
		if !describeDevice(t, &d, word) {
			d.Attachments = append(d.Attachments, parseAttachment(t, s, word))
		}
	}
	s.Devices = append(s.Devices, d)
}

func describeDevice(t *testing.T, d *snapshot.Device, word string) bool {
	power, isPower := strings.CutPrefix(word, "w") // draw/limit in watts
	draw, limit, _ := strings.Cut(power, "/")
	switch {
	case word == "failed":
		d.Failed = true
	case word == "unified":
		d.Unified = true
	case word == "unusable":
		d.Unusable = "its compute mode is Prohibited"
	case strings.HasPrefix(word, "u"):
		d.Utilization = new(number(t, word[1:]))
	case word == "mig":
		d.MIGMode = true
	case isPower && limit != "":
		d.Power = new(float64(number(t, draw)))
		if limit != "0" {
			d.PowerLimit = new(float64(number(t, limit)))
		}
	case word == "screen":
		d.Display = new(true)
	case word == "m?":
		d.TotalMemory = snapshot.Memory{}
	case strings.HasPrefix(word, "model:"):
		d.Name = "NVIDIA " + strings.TrimPrefix(word, "model:")
	case strings.HasPrefix(word, "GPU-"):
		d.UUID = snapshot.GPUUUID(word)
	case word == "who?":
		d.Unidentified = true
	case word == "p?":
		d.ProcessesUnknown = true
	default:
		return false
	}
	return true
}

func parseAttachment(t *testing.T, s *snapshot.Snapshot, word string) snapshot.Attachment {
	eid, minute, seen := strings.Cut(word, "@")
	if !seen {
		eid, minute, _ = strings.Cut(word, "~")
	}
	if !strings.Contains(minute, ":") {
		minute = "10:" + minute
	}
	at, err := snapshot.ParseDate("20/11/2026 " + minute + ":00")
	require.NoError(t, err)
	a := snapshot.Attachment{EID: snapshot.EnvID(eid), Time: at}
	if seen {
		a.Since = sinceBoot(at)
	}
	if e := s.Environment(a.EID); e != nil {
		a.GPUMemory = e.Config.GPUMemory
	}
	return a
}

func parseProcess(t *testing.T, s *snapshot.Snapshot, words []string) {
	p := snapshot.Process{PID: snapshot.PID(number(t, words[0])), EID: snapshot.EnvID(strings.Trim(words[1], "-")), Start: 1}
	if words[1] == "?" || words[1] == "!" {
		p.EID, p.EnvUnknown, p.EnvOverwritten = "", true, words[1] == "!"
	}
	for _, word := range words[2:] {
		if uid, ok := strings.CutPrefix(word, "u"); ok {
			p.UID = new(snapshot.UID(number(t, uid)))
			continue
		}
		if key, value, ok := strings.Cut(word, ":"); ok && describeProcess(&p, key, value) {
			continue
		}
		device, mib, _ := strings.Cut(word, ":")
		mib, kind, _ := strings.Cut(mib, ":")
		u := snapshot.DeviceUsage{Index: index(t, device), Type: snapshot.ProcessType(kind)}
		if mib != "?" {
			u.Memory = snapshot.MiB(int64(number(t, mib)))
		}
		p.Usage = append(p.Usage, u)
	}
	s.Processes = append(s.Processes, p)
}

func describeProcess(p *snapshot.Process, key, value string) bool {
	switch key {
	case "by":
		p.Username = snapshot.Username(value)
	case "protected":
		p.Protected = value
	case "in":
		p.Container = value
	case "started-at": // an hour of the day of booted, or "?"
		p.Start = 0
		if hour, err := strconv.Atoi(value); err == nil {
			p.Start = snapshot.StartTime(time.Duration(hour) * time.Hour / (10 * time.Millisecond))
		}
	case "stalled": // by its user or by anything else
		p.Unreadable, p.EnvUnknown = &snapshot.Unreadable{Why: "its memory does not answer", ByUser: value == "user"}, true
	case "from":
		p.Inherited = snapshot.EnvID(value)
	case "started": // in a container of root's runtime, by a user or by "?"
		p.Container, p.ContainerInfo = "web", &snapshot.ContainerInfo{Name: "web"}
		if uid, err := strconv.Atoi(value); err == nil {
			p.ContainerInfo.UID, p.ContainerInfo.Proof = new(snapshot.UID(uid)), snapshot.ProofRecord
			p.ContainerInfo.User = map[int]snapshot.Username{1001: "alice", 1002: "bob"}[uid]
		}
	case "rootless": // in a container of a user's own engine
		uid := snapshot.UID(0)
		_, _ = fmt.Sscan(value, &uid)
		p.Container, p.ContainerInfo = "web", &snapshot.ContainerInfo{UID: &uid, User: p.Username, Proof: snapshot.ProofRootless}
	default:
		return false
	}
	return true
}

// planText writes a plan down as the tables do.
func planText(plan enforce.Plan) string {
	var lines []string
	for _, o := range plan.Orders {
		for _, d := range o.Order.Detach {
			lines = append(lines, string(o.Host)+" detach "+d.Device.String()+" "+string(d.Environment.EID))
		}
		for _, x := range o.Order.Terminate {
			lines = append(lines, string(o.Host)+" end "+itoa(int(x.Process.PID)))
		}
	}
	return strings.Join(lines, "; ")
}

// planRow is a policy, a cluster, and the plan that follows.
type planRow struct {
	name          string
	policy        stated
	cluster, want string
}

func runPlans(t *testing.T, rows []planRow) {
	for _, tt := range rows {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, planText(evaluate(tt.policy, parseCluster(t, tt.cluster), noon(0))))
		})
	}
}

// capOf is a policy with a cap on the devices of a user.
func capOf(n int) stated { return stated{all: enforce.Settings{MaxDevices: &n}} }

func TestRules(t *testing.T) {
	nonEnv := stated{all: enforce.Settings{NonEnvProcesses: true}}
	devices := stated{all: enforce.Settings{EnvDevices: true}}
	memory := stated{all: enforce.Settings{EnvMemory: true}}
	all := stated{all: enforce.Settings{NonEnvProcesses: true, EnvDevices: true, EnvMemory: true}}
	for _, tt := range []planRow{
		// non-env-processes
		{"a process outside ends", nonEnv, `a | dev 0 | proc 5 - 0:1`, "a end 5"},
		{"an unregistered claim is not an environment", nonEnv, `a | dev 0 | proc 5 bogus 0:1`, "a end 5"},
		{"an environment of another host does not count here", nonEnv, "a | env 1 alice | dev 0 1@01\nb | dev 0 | proc 5 1 0:1", "b end 5"},
		{"a process inside stays", nonEnv, `a | env 1 alice | dev 0 1@01 | proc 5 1 0:1`, ""},
		{"inside but not attached is another rule's", nonEnv, `a | env 1 alice | dev 0 | proc 5 1 0:1`, ""},
		{"unknown is not outside", nonEnv, `a | dev 0 | proc 5 ? 0:1`, ""},
		{"the rule is off", stated{}, `a | dev 0 | proc 5 - 0:1`, ""},
		{"a host that is down has no processes and no sentence", nonEnv, `a | down`, ""},

		// env-devices
		{"a device that is not attached", devices, `a | env 1 alice | dev 0 1@01 | dev 1 | proc 5 1 0:1 1:1`, "a end 5"},
		{"attached to someone else", devices, `a | env 1 alice | env 2 bob | dev 0 1@01 | dev 1 2@01 | proc 5 1 1:1`, "a end 5"},
		{"attached", devices, `a | env 1 alice | dev 0 1@01 | proc 5 1 0:1`, ""},
		{"a shared device is everybody's who is attached", devices, `a | env 1 alice | env 2 bob | dev 0 1@01 2@02 | proc 5 1 0:1 | proc 6 2 0:1`, ""},
		{"outside of any environment is another rule's", devices, `a | dev 0 | proc 5 - 0:1`, ""},
		{"unknown memory does not hide the device", devices, `a | env 1 alice | dev 0 | proc 5 1 0:?`, "a end 5"},
		{"an unknown environment is left alone", devices, `a | env 1 alice | dev 0 | proc 5 ? 0:1`, ""},

		// env-memory; 4g is 4000 MB, 4000 MiB are 4194 MB
		{"over the capacity", memory, `a | env 1 alice 4g | dev 0 1@01 | proc 5 1 0:4000`, "a end 5"},
		{"at the capacity", memory, `a | env 1 alice 4000mi | dev 0 1@01 | proc 5 1 0:4000`, ""},
		{"without a capacity", memory, `a | env 1 alice | dev 0 1@01 | proc 5 1 0:80000`, ""},
		{"on another device than the attached", memory, `a | env 1 alice 4g | dev 0 1@01 | dev 1 | proc 5 1 1:80000`, ""},
		{"each device for itself", memory, `a | env 1 alice 4g | dev 0 1@01 | dev 1 1@01 | proc 5 1 0:3000 | proc 6 1 1:3000`, ""},
		{"the smallest that alone frees enough", memory, `a | env 1 alice 4000mi | dev 0 1@01 | proc 5 1 0:3000 | proc 6 1 0:1500 | proc 7 1 0:900`, "a end 6"},
		{"while none does, the largest", memory, `a | env 1 alice 1000mi | dev 0 1@01 | proc 5 1 0:900 | proc 6 1 0:950 | proc 7 1 0:800`, "a end 6; a end 7"},
		{"ties go to the higher PID", memory, `a | env 1 alice 1000mi | dev 0 1@01 | proc 5 1 0:600 | proc 6 1 0:600`, "a end 6"},
		{"what ends anyway counts as freed", all, `a | env 1 alice 4000mi | dev 0 1@01 | dev 1 | proc 5 1 0:3000 1:10 | proc 6 1 0:2000`, "a end 5"},
		{"what ends on an earlier device counts as freed", memory, `a | env 1 alice 1000mi | dev 0 1@01 | dev 1 1@01 | proc 5 1 0:2000 1:900 | proc 6 1 1:500`, "a end 5"},
		{"unknown memory is not counted", memory, `a | env 1 alice 1000mi | dev 0 1@01 | proc 5 1 0:? | proc 6 1 0:900`, ""},
		{"what is known is over by itself", memory, `a | env 1 alice 1000mi | dev 0 1@01 | proc 5 1 0:? | proc 6 1 0:1100`, "a end 6"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plan := evaluate(tt.policy, parseCluster(t, tt.cluster), time.Time{})
			require.Equal(t, tt.want, planText(plan))
			require.Equal(t, tt.want == "", len(plan.Findings) == 0)
		})
	}
}

// TestGraphics: a desktop on its screen is left alone, and what only looks like one isn't.
func TestGraphics(t *testing.T) {
	for name, row := range map[string]struct {
		hosts string
		judge bool // graphics: judge
		want  string
	}{
		"a compositor":                                       {"a | dev 0 screen | proc 500 - 0:25:C+G", false, ""},
		"an X server":                                        {"a | dev 0 screen | proc 500 - 0:25:G", false, ""},
		"a job on the desktop's GPU":                         {"a | dev 0 screen | proc 500 - 0:25:C", false, "500"},
		"an X server, graphics: judge":                       {"a | dev 0 screen | proc 500 - 0:25:G", true, "500"},
		"Vulkan where no screen is":                          {"a | dev 0 | proc 500 - 0:25:G", false, "500"},
		"Vulkan beside a screen":                             {"a | dev 0 screen | dev 1 | proc 500 - 0:25:G 1:9000:G", false, "500"},
		"Vulkan in an environment":                           {"a | env 10 alice | dev 0 10@01 | proc 500 10 0:9:G", false, ""},
		"an EGL context where no screen is":                  {"a | dev 0 | proc 500 - 0:25:C+G", false, "500"},
		"and where another GPU has one":                      {"a | dev 0 | dev 1 screen | proc 500 - 0:25:C+G", false, "500"},
		"a desktop that also computes elsewhere":             {"a | dev 0 | dev 1 screen | proc 500 - 1:25:C+G 0:25:C", false, "500"},
		"graphics: judge":                                    {"a | dev 0 screen | proc 500 - 0:25:C+G", true, "500"},
		"no answer yet":                                      {"a | dev 0 screen | dev 1 | proc 500 - 0:25:? | proc 501 - 1:9:C", false, "501"},
		"no answer yet, judged anyway":                       {"a | dev 0 screen | proc 500 - 0:25:?", true, "500"},
		"a display, of an unknown type":                      {"a | dev 0 screen | dev 1 | proc 500 - 0:25 | proc 501 - 1:9", false, "501"},
		"a GPU without a display":                            {"a | dev 0 | proc 500 - 0:25\nb | dev 0 | proc 501 - 0:9:C", false, "500 501"},
		"and judged anyway":                                  {"a | dev 0 | proc 500 - 0:25", true, "500"},
		"nothing would be done":                              {"a | env 10 alice | dev 0 10@01 | proc 500 10 0:25", false, ""},
		"in an environment, on its GPU and on the screen's":  {"a | env 10 alice | dev 0 10@01 | dev 1 screen | proc 500 10 0:9:C 1:25:C+G", false, ""},
		"in an environment, on its GPU and without a screen": {"a | env 10 alice | dev 0 10@01 | dev 1 | proc 500 10 0:9:C 1:25:C+G", false, "500"},
		"over its memory":                                    {"a | env 10 alice 10m | dev 0 screen 10@01 | proc 500 10 0:25:C+G", false, ""},
		"a job over its memory":                              {"a | env 10 alice 10m | dev 0 10@01 | proc 500 10 0:25", false, "500"},
		"over its memory, without a screen":                  {"a | env 10 alice 10m | dev 0 10@01 | proc 500 10 0:25:C+G", false, "500"},
	} {
		t.Run(name, func(t *testing.T) {
			settings := enforce.Settings{NonEnvProcesses: true, EnvDevices: true, EnvMemory: true, JudgeGraphics: row.judge}
			cluster := parseCluster(t, row.hosts)
			plan := evaluate(stated{all: settings}, cluster, time.Time{})
			var ended []string
			for _, o := range plan.Orders {
				for i := range o.Order.Terminate {
					ended = append(ended, fmt.Sprint(o.Order.Terminate[i].Process.PID))
				}
			}
			require.Equal(t, row.want, strings.Join(ended, " "))
		})
	}
}

func TestMaxDevices(t *testing.T) {
	only := func(caps map[snapshot.Username]int) stated { return stated{asked: capsOf(caps)} }
	runPlans(t, []planRow{
		{"at the cap", capOf(1), `a | env 1 alice | dev 0 1@01 | dev 1`, ""},
		{"no cap", stated{all: enforce.Settings{EnvDevices: true, EnvMemory: true}}, `a | env 1 alice | dev 0 1@01 | dev 1 1@02`, ""},
		{"another user's cap", only(map[snapshot.Username]int{"bob": 0}), `a | env 1 alice | dev 0 1@01`, ""},
		{"a cap for one user alone", only(map[snapshot.Username]int{"alice": 1}), `a | env 1 alice | dev 0 1@01 | dev 1 1@02`, "a detach 1 1"},
		{"two users are counted apart", capOf(1), `a | env 1 alice | env 2 bob | dev 0 1@01 | dev 1 2@01`, ""},
		{"two environments on one device count once", capOf(1), `a | env 1 alice | env 2 alice | dev 0 1@01 2@02`, ""},
		{"and are both detached", capOf(0), `a | env 1 alice | env 2 alice | dev 0 1@01 2@02`, "a detach 0 1; a detach 0 2"},
		{"the newest of idle ones", capOf(1), `a | env 1 alice | dev 0 1@05 | dev 1 1@01`, "a detach 0 1"},
		{"idle before busy, however new", capOf(1), `a | env 1 alice | dev 0 1@09 | dev 1 1@01 | proc 5 1 0:1`, "a detach 1 1"},
		{"across hosts", capOf(1), "a | env 1 alice | dev 0 1@01 | proc 5 1 0:1\nb | env 2 alice | dev 0 2@02", "b detach 0 2"},
		{"busy when there is nothing else", capOf(0), `a | env 1 alice | dev 0 1@01 | proc 5 1 0:1`, "a detach 0 1; a end 5"},
		{
			"what ends anyway before what is busy",
			stated{all: enforce.Settings{EnvMemory: true}, asked: capsOf(map[snapshot.Username]int{"alice": 1})},
			`a | env 1 alice 1g | dev 0 1@01 | dev 1 1@09 | proc 5 1 0:2000 | proc 6 1 1:1`, "a detach 0 1; a end 5",
		},
		{
			"one process on two devices ends once, and frees both", capOf(1),
			`a | env 1 alice | dev 0 1@01 | dev 1 1@09 | dev 2 1@05 | proc 5 1 0:1 1:1 | proc 6 1 2:1`, "a detach 0 1; a detach 1 1; a end 5",
		},
		{"equal times: by host, then index", capOf(2), "b | env 1 alice | dev 0 1@01 | dev 1 1@01\na | env 1 alice | dev 0 1@01", "b detach 0 1"},
		{"another's process on a shared device is not touched", capOf(0), `a | env 1 alice | env 2 bob | dev 0 1@01 | dev 1 2@01 | proc 5 2 1:1`, "a detach 0 1; a detach 1 2; a end 5"},
		{"only the capped user's processes end", only(map[snapshot.Username]int{"alice": 0}), `a | env 1 alice | env 2 bob | dev 0 1@01 2@02 | proc 5 2 0:1 | proc 6 1 0:1`, "a detach 0 1; a end 6"},
		{"a device in doubt is not idle", capOf(1), `a | env 1 alice | dev 0 1@09 | dev 1 1@01 | proc 5 ? 0:1`, "a detach 1 1"},
		{"a user without a name has no cap", capOf(0), `a | env 1 - | dev 0 1@01`, ""},
		{"devices of a host that is down do not count", capOf(1), "a | env 1 alice | dev 0 1@01\nb | down", ""},
		{"an attachment of an unregistered environment counts for no user", capOf(0), `a | dev 0 7@01`, ""},
	})
}

// A process that claims another user's environment is outside: it is named, and takes nothing from its members.
func TestAClaimToAnotherUsersEnvironment(t *testing.T) {
	memory := `a | env 1 alice 4000mi u1001 | dev 0 1@01 | proc 5 1 u1001 0:3000 | proc 6 1 u1002 0:3300`
	plan := evaluate(stated{all: enforce.Settings{EnvMemory: true}}, parseCluster(t, memory), time.Time{})
	require.Empty(t, planText(plan), "its memory doesn't count")
	require.Equal(t, "process 6 (uid 1002) claims environment 1, which belongs to uid 1001: it counts as outside", plan.Notes[0].Text)

	plan = evaluate(stated{all: enforce.Settings{EnvMemory: true}}, parseCluster(t, memory+" | proc 7 1 u0 0:3000"), time.Time{})
	require.Equal(t, "a end 7", planText(plan), "root's is no other user's: containers run as root")
}

func TestUnknownsAreNoted(t *testing.T) {
	cluster := parseCluster(t, `a | env 1 - 1000mi | dev 0 1@01 | proc 5 ? 0:1 | proc 6 1 0:?`)
	plan := evaluate(stated{all: enforce.Settings{NonEnvProcesses: true, EnvMemory: true, MaxDevices: new(0)}}, cluster, time.Time{})
	require.Empty(t, plan.Findings)
	require.Empty(t, plan.Orders)
	var notes []string
	for _, n := range plan.Notes {
		notes = append(notes, string(n.Host)+": "+n.Text)
	}
	require.Equal(t, []string{
		"a: the environment of process 5 could not be read, so it is left alone",
		"a: how much memory 1 processes of environment 1 use on GPU 0 is not known, so its capacity is not judged",
		"a: environment 1 has no user name, so no cap counts it",
	}, notes)
}

func TestThisMachineHasNoName(t *testing.T) {
	cluster := parseCluster(t, ` | env 1 alice | dev 0 1@01 | dev 1 1@02`)
	plan := evaluate(capOf(1), cluster, time.Time{})
	require.Equal(t, "User alice is using 2 devices which is 1 more than the maximum allowed", plan.Findings[0].String())
}
