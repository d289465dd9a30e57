package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// A name that could not be asked for is unknown, which is not "has no name": a policy may exempt the user by it.
func TestUserNames(t *testing.T) {
	const vip, nameless = snapshot.UID(4_000_000_001), snapshot.UID(4_000_000_002) // no /etc/passwd has them
	s := &snapshot.Snapshot{}
	for _, uid := range []snapshot.UID{vip, 0, vip, nameless} {
		s.Processes = append(s.Processes, snapshot.Process{UID: &uid})
	}
	s.Processes = append(s.Processes, snapshot.Process{})
	now, asked := time.Now(), 0
	var down, gone error
	gone = exec.Command("sh", "-c", "exit 2").Run()
	n := userNames{now: func() time.Time { return now }, accounts: nss.Passwd{Getent: func(_ context.Context, _ string, ids ...string) ([]byte, error) {
		asked++
		if down != nil {
			return nil, down
		}
		if ids[0] == "4000000001" {
			return []byte(strings.Join([]string{"vip", "x", ids[0], "1", "", "/", "/bin/sh"}, ":") + "\n"), nil
		}
		return nil, gone
	}}}
	requireNames := func(vipName snapshot.Username, vipUnknown, namelessUnknown bool, questions int) {
		t.Helper()
		asked = 0
		n.ask(t.Context(), s)
		require.Equal(t, questions, asked)
		for uid, want := range map[snapshot.UID]userNameSeen{0: {"root", false}, vip: {vipName, vipUnknown}, nameless: {"", namelessUnknown}} {
			name, unknown := n.of(uid)
			require.Equal(t, want, userNameSeen{name, unknown}, uid)
		}
	}
	for _, down = range []error{errors.New("timeout"), context.DeadlineExceeded, exec.Command("sh", "-c", "exit 1").Run(), exec.Command("sh", "-c", "kill -9 $$").Run()} {
		require.Error(t, down)
		requireNames("", true, true, 2)
	}
	down = nil
	requireNames("vip", false, false, 2)
	requireNames("vip", false, false, 0)
	now = now.Add(time.Minute)
	requireNames("vip", false, false, 1)
	now, down = now.Add(time.Minute), errors.New("timeout")
	requireNames("vip", false, true, 1)
	down = exec.ErrNotFound
	requireNames("vip", false, false, 1)

	n.known = nil
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n.ask(ctx, s)
	_, unknown := n.of(vip)
	require.True(t, unknown)
}

type userNameSeen struct {
	name    snapshot.Username
	unknown bool
}

func TestAProgramThatHangs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := runProgram(ctx, "sleep", "60")
	require.EqualError(t, err, "no answer in time")
}

// TestAllowancesAreRenewed: at once if they are new, and otherwise well before they end.
func TestAllowancesAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const two, three = "2", "3"
		var passed []string
		var failure error
		a := &allowances{pass: func(_ context.Context, a service.Allowance) error {
			passed = append(passed, a.By)
			return failure
		}}
		defer a.close()
		say := func(by string) []string {
			passed = nil
			a.renew(&service.Allowance{By: by, ForMS: 60000})
			synctest.Wait()
			return passed
		}
		require.Equal(t, []string{two}, say(two))
		require.Empty(t, say(two))
		require.Equal(t, []string{three}, say(three))
		time.Sleep(14 * time.Second)
		require.Empty(t, say(three))
		time.Sleep(time.Second)
		require.Equal(t, []string{three}, say(three))
		failure = service.ErrNotRunning
		require.Equal(t, []string{two}, say(two))
		require.Equal(t, []string{two}, say(two), "the service may have started")
		a.renew(nil)
		synctest.Wait()
		require.Equal(t, []string{two, two}, passed, "it isn't told again")
		failure = nil
		a.note(&service.Allowance{By: three, ForMS: 60000})
		passed = nil
		a.renew(nil)
		synctest.Wait()
		require.Equal(t, []string{three}, passed, "what was said while it didn't run")
		a.renew(nil)
		synctest.Wait()
		require.Len(t, passed, 1, "the service has it")
	})
}

// TestAnAllowanceWaitsForNothing: a service that hangs delays no snapshot.
func TestAnAllowanceWaitsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		a := &allowances{pass: func(ctx context.Context, _ service.Allowance) error {
			calls++
			<-ctx.Done()
			return ctx.Err()
		}}
		defer a.close()
		began := time.Now()
		a.renew(&service.Allowance{})
		a.renew(&service.Allowance{By: "x"})
		require.Equal(t, began, time.Now())
		time.Sleep(passWithin)
		synctest.Wait()
		require.Equal(t, 1, calls, "one at a time")
		a.renew(nil)
		synctest.Wait()
		require.Equal(t, 2, calls, "what it was told meanwhile")
	})
}

// An answer is shared for its age, unless something changed after it was asked for.
func TestRecentAnswers(t *testing.T) {
	var r recent[int]
	asked := 0
	get := func(age time.Duration, during func()) int {
		value, err := r.get(age, func() (int, error) {
			asked++
			during()
			return asked, nil
		})
		require.NoError(t, err)
		return value
	}
	nothing := func() {}
	require.Equal(t, 1, get(time.Hour, nothing))
	require.Equal(t, 1, get(time.Hour, nothing))
	require.Equal(t, 2, get(0, nothing))
	r.outdated.Store(true)
	require.Equal(t, 3, get(time.Hour, func() { r.outdated.Store(true) }), "it changed while it was asked for")
	require.Equal(t, 4, get(time.Hour, nothing))
	require.Equal(t, 4, get(time.Hour, nothing))
}

// Where it is unknown who uses a GPU that no one else has, it may be the owner, if all of a reservation may be the owner's.
func TestMayHold(t *testing.T) {
	alice, bob := snapshot.UID(4001), snapshot.UID(4002)
	uses := func(uid *snapshot.UID, list ...snapshot.DeviceIndex) snapshot.Process {
		p := snapshot.Process{UID: uid}
		for _, index := range list {
			p.Usage = append(p.Usage, snapshot.DeviceUsage{Index: index})
		}
		return p
	}
	type processes = []snapshot.Process
	for name, tt := range map[string]struct {
		processes processes
		more      []snapshot.More
		unknown   bool // who uses GPU 1
		want      bool
	}{
		"nobody":                  {},
		"one of two":              {processes: processes{uses(&alice, 0)}, want: true},
		"another person":          {processes: processes{uses(&bob, 0)}},
		"others have all":         {processes: processes{uses(&bob, 0, 1)}, want: true},
		"no GPU":                  {processes: processes{uses(nil), uses(&alice)}},
		"more":                    {more: []snapshot.More{{UID: &alice, GPUs: []snapshot.DeviceIndex{0}}}, want: true},
		"whose":                   {processes: processes{uses(nil, 0), uses(nil, 1)}, want: true},
		"whose, of one":           {processes: processes{uses(nil, 0)}},
		"whose, and another's":    {processes: processes{uses(nil, 1), uses(&bob, 1)}},
		"whose, and attached":     {processes: processes{uses(nil, 0, 2)}},
		"whose more":              {more: []snapshot.More{{GPUs: []snapshot.DeviceIndex{0, 1}}}, want: true},
		"a GPU, and whose":        {processes: processes{uses(nil, 0)}, unknown: true, want: true},
		"a GPU that is not known": {unknown: true},
	} {
		s := snapshot.Snapshot{
			Processes: tt.processes, More: tt.more, Environments: []snapshot.Environment{{EID: "b", UID: bob}},
			Devices: []snapshot.Device{{}, {Index: 1, ProcessesUnknown: tt.unknown}, {Index: 2, Attachments: []snapshot.Attachment{{EID: "b"}}}},
		}
		require.Equal(t, tt.want, mayHold(&s, &snapshot.Reservation{UID: alice, GPUs: 2}), name)
	}
}

// TestMessagesWithoutAReader: what is shown on a terminal that is not used is shown at the next login, too. The pane
// of a detached tmux session is such a terminal.
func TestMessagesWithoutAReader(t *testing.T) {
	proctest.NeedRoot(t)            // only root can give terminals to users
	const uid = snapshot.UID(60781) // no real user gets a message
	passwd := filepath.Join(t.TempDir(), "passwd")
	require.NoError(t, os.WriteFile(passwd, []byte("alice:x:60781:60781::/home/alice:/bin/sh\n"), 0o600))
	for name, tt := range map[string]struct {
		typed []time.Duration // on each terminal, before the message
		want  agent.Receipt
	}{
		"typed lately":         {typed: []time.Duration{time.Minute}, want: agent.Receipt{Terminals: 1}},
		"not lately":           {typed: []time.Duration{time.Hour}, want: agent.Receipt{Terminals: 1, Kept: true}},
		"lately on one of two": {typed: []time.Duration{time.Hour, time.Minute}, want: agent.Receipt{Terminals: 2}},
		"no terminal":          {want: agent.Receipt{Kept: true}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, before := range tt.typed {
				screen, tty, err := pty.Open()
				require.NoError(t, err)
				t.Cleanup(func() { _ = screen.Close(); _ = tty.Close() })
				require.NoError(t, os.Chown(tty.Name(), int(uid), 5)) // 5 is the group tty
				require.NoError(t, os.Chmod(tty.Name(), 0o620))
				require.NoError(t, os.Chtimes(tty.Name(), time.Now().Add(-before), time.Now()))
			}
			root, log := t.TempDir()+"/root", t.TempDir()+"/log/audit.jsonl"
			h := &host{
				getenv: func(name string) string { return map[string]string{"GENV_ROOT_DIR": root}[name] },
				record: &hostRecord{now: time.Now, path: log}, names: userNames{now: time.Now, accounts: nss.Passwd{File: passwd}},
			}
			require.Equal(t, []agent.Receipt{tt.want}, h.notify(t.Context(), []agent.Message{{UID: uid, IDs: []string{"i"}, Text: "x", DueMS: 600_000}}))
			kept, err := notify.Box{Root: root}.Notices(uid, time.Now())
			require.NoError(t, err)
			require.Len(t, kept, 1, "it can be read again")
			require.Contains(t, []string{
				"x\nDue at " + snapshot.When(kept[0].Time.Add(10*time.Minute).Local()) + ".",
				"x\nDue at " + snapshot.When(kept[0].Time.Add(10*time.Minute-time.Second).Local()) + ".",
			}, kept[0].Text)
			require.Len(t, kept[0].Terminals, len(tt.typed))
			require.Zero(t, h.notify(t.Context(), []agent.Message{{UID: uid, IDs: []string{"i"}, Over: true}})[0])
			kept, err = notify.Box{Root: root}.Notices(uid, time.Now())
			require.NoError(t, err)
			require.Contains(t, kept[0].Shown(), "\nThat was over at ")
			entries, _, err := audit.History(audit.UserLogPath(log, uid), audit.Filter{Notices: true})
			require.NoError(t, err)
			require.Len(t, entries, 1, "the end of a warning is recorded, and not shown")
			require.Empty(t, audit.Latest(entries, time.Now()))
		})
	}
}

// TestDaemonJSON: genv's runtime becomes the one that was the default before.
func TestDaemonJSON(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	for _, name := range []string{"genv", "runc", "crun", "open"} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), nil, 0o755))
	}
	require.NoError(t, os.Chmod(filepath.Join(bin, "open"), 0o777))
	genv := filepath.Join(bin, "genv")
	inPlace := fmt.Sprintf(`{"default-runtime": "genv", "runtimes": {"genv": {"path": %q, "runtimeArgs": ["container-runtime", "--real=%s/crun", "--"]}}}`, genv, bin)
	for before, want := range map[string]string{
		``: "--real=" + bin + "/runc",
		`{"dns": ["1.1.1.1"], "default-runtime": "io.containerd.runc.v2"}`: "--real=" + bin + "/runc",
		`{"default-runtime": "crun"}`:                                      "--real=" + bin + "/crun",
		`{"default-runtime": "x", "runtimes": {"x": {"path": "crun"}}}`:    "--real=" + bin + "/crun",
		strings.Replace(inPlace, genv, "/opt/genv", 1):                     "--real=" + bin + "/crun",
		inPlace: "/etc/docker/daemon.json: OK\n",
		`{"default-runtime": "x", "runtimes": {"x": {"path": "crun", "runtimeArgs": ["--debug"]}}}`: "has arguments",
		`{"default-runtime": "open"}`:    "other users can write",
		`{"default-runtime": "missing"}`: "not found",
		`{"runtimes": []}`:               "daemon.json: json",
	} {
		var out strings.Builder
		err := (&hostCommands{command.Program{Out: &out, Err: io.Discard}}).setupDocker([]byte(before), genv)
		if err != nil {
			out.WriteString(err.Error())
		}
		require.Contains(t, out.String(), want, before)
		if strings.HasPrefix(want, "--real") {
			var printed daemonConfig
			require.NoError(t, json.Unmarshal([]byte(out.String()), &printed))
			require.Equal(t, daemonConfig{"genv", map[string]daemonRuntime{"genv": {genv, []string{"container-runtime", want, "--"}}}}, printed)
		}
	}
}

func TestParse(t *testing.T) {
	for line, want := range map[string]runcCall{
		"--root /r --log /l --log-format json create --bundle /b --pid-file /p ID": {command: "create", bundle: "/b", id: "ID", log: "/l"},
		"--root=/r --log=/l --systemd-cgroup create --console-socket=/c -b /b ID":  {command: "create", bundle: "/b", id: "ID", log: "/l"},
		"run -d --bundle=/b ID":                {command: "run", bundle: "/b", id: "ID"},
		"create ID":                            {command: "create", bundle: ".", id: "ID"},
		"create -- ID":                         {command: "create", bundle: ".", id: "ID"},
		"create --no-pivot --preserve-fds 3 x": {command: "create", bundle: ".", id: "x"},
		"--log /l start ID":                    {command: "start", bundle: ".", log: "/l"},
		"--root create delete --force ID":      {command: "delete", bundle: "."},
		"--version":                            {bundle: "."},
		"":                                     {bundle: "."},
		"create":                               {command: "create", bundle: "."},
		"create --bundle":                      {command: "create", bundle: "."},
	} {
		c := parseCall(strings.Fields(line))
		c.args = nil
		require.Equal(t, want, *c, line)
	}
}

func TestOwnFlags(t *testing.T) {
	for line, want := range map[string][2]string{
		"--real=/r --instead-of=runc -- --log /l create": {"/r", "--log /l create"},
		"--real /r -- create":                            {"/r", "create"},
		"--real /r create":                               {"/r", "create"},
		"create --real x":                                {"", "create --real x"},
		"-- --real x":                                    {"", "--real x"},
		"":                                               {"", ""},
	} {
		own, rest := ownFlags(strings.Fields(line))
		require.Equal(t, want, [2]string{own["real"], strings.Join(rest, " ")}, line)
	}
}

func TestEngineName(t *testing.T) {
	for bundle, want := range map[string]string{
		"/run/docker/containerd/daemon/io.containerd.runtime.v2.task/moby/abc": "docker",
		"/run/containerd/io.containerd.runtime.v2.task/k8s.io/abc":             "containerd",
		"/var/lib/containers/storage/overlay-containers/abc/userdata":          "podman",
		"/tmp/b": "",
	} {
		require.Equal(t, want, (&runcCall{bundle: bundle}).engineName(), bundle)
	}
}

// FuzzParseCall: whatever an engine passes on, the real runtime gets the same words, and the
// id of a container is one of them.
func FuzzParseCall(f *testing.F) {
	for _, seed := range []string{
		"--root\n/r\n--log\n/l\ncreate\n--bundle\n/b\n--pid-file\n/p\nID", "run\n-d\n--bundle=/b\nID", "create\n--\nID", "create\n--bundle", "--real=/r\n--\ncreate\nID", "-\n--\n--=",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, "\n")
		c := parseCall(args)
		require.Equal(t, strings.Split(line, "\n"), c.args)
		require.NotEmpty(t, c.bundle)
		if c.id != "" {
			require.True(t, c.starts())
			require.Contains(t, args, c.id)
		}
		_, rest := ownFlags(args)
		require.True(t, strings.HasSuffix("\n"+line, "\n"+strings.Join(rest, "\n")) || len(rest) == 0)
	})
}

// A round of upkeep that hangs keeps systemd's watchdog from being pinged, and rounds that are slow don't.
func TestTheWatchdogFollowsUpkeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		beat, moves := pulse()
		time.Sleep(stuckAfter - time.Second)
		require.True(t, moves(), "the first round takes long")
		for range 5 {
			beat()
			time.Sleep(stuckAfter - time.Second)
			require.True(t, moves())
		}
		time.Sleep(time.Second)
		require.False(t, moves(), "it hangs")
		beat()
		require.True(t, moves())
	})
}
