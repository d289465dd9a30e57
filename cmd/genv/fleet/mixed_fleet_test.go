package fleet_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// crowded is a fleet with both kinds of genv, on which users attach and detach devices while it is enforced.
type crowded struct {
	*sshd.Fleet
	t              *testing.T
	program        string
	stop           chan struct{}
	running        sync.WaitGroup
	end            func() // of all that users do
	mu             sync.Mutex
	failures       []string
	changes, looks int
	honest, guilty map[string]*testfleet.Process
}

func openCrowded(t *testing.T) *crowded {
	hosts := sshd.Named("ours-1", "ours-2", "old-1", "old-2")
	hosts[2].Rights, hosts[3].Rights = sshd.MaySudo143, sshd.MaySudo143
	program := genvtest.Program(t)
	c := &crowded{
		t: t, program: program, stop: make(chan struct{}), honest: map[string]*testfleet.Process{}, guilty: map[string]*testfleet.Process{},
		Fleet: sshd.Start(t, sshd.Options{Hosts: hosts, Genv: program}),
	}
	c.end = sync.OnceFunc(func() { close(c.stop); c.running.Wait() })
	t.Cleanup(c.end)
	for _, h := range c.Hosts() {
		for i, user := range []string{"alice", "bob"} {
			first := snapshot.DeviceIndex(2 * i)
			env := c.activate(h, user, first)
			c.job(c.honest, h, user, env, first)
			c.running.Go(func() { c.attachAndDetach(h, env, first+1) })
			c.running.Go(func() { c.comeAndGo(h, user) })
		}
		carol := c.activate(h, "carol", 4, 5) // she may have one in all
		c.job(c.guilty, h, "carol", carol, 6)
		c.job(c.guilty, h, "bob", nil, 7)
	}
	return c
}

func (c *crowded) activate(h *sshd.Host, user string, devices ...snapshot.DeviceIndex) *testfleet.Env {
	return genvtest.Activate(c.t, h, testfleet.Environment{User: user, Devices: devices})
}

func (c *crowded) job(fate map[string]*testfleet.Process, h *sshd.Host, user string, env *testfleet.Env, device snapshot.DeviceIndex) {
	job := testfleet.Job{User: user, Env: genvtest.Outside, Uses: []testfleet.Use{{Device: device, MiB: 100}}}
	if env != nil {
		job.Env = append(job.Env, env.Var())
	}
	fate[fmt.Sprintf("%s's on device %d of %s", user, device, h.Name)] = genvtest.StartJob(c.t, h, job)
}

func (c *crowded) fail(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures = append(c.failures, fmt.Sprintf(format, args...))
}

// pause leaves the machine to the others between two rounds.
const pause = 400 * time.Millisecond

// until calls f again and again until the end, with 0, 1, ….
func (c *crowded) until(f func(round int)) {
	for round := 0; ; round++ {
		select {
		case <-c.stop:
			return
		case <-time.After(pause):
			f(round)
		}
	}
}

// run runs genv on a host as a user. With ours on it, each second round is 1.4.3's: both write the same state files.
func (c *crowded) run(h *sshd.Host, user string, round int, words ...string) bool {
	program := c.Genv143()
	if strings.HasPrefix(h.Name, "ours") && round%2 == 0 {
		program = filepath.Join(c.Dir, "bin", "genv")
	}
	uid, err := sshd.UID(user)
	cmd := exec.Command(program, words...)
	cmd.Env = append(h.Variables(), "USER="+user, "PATH="+filepath.Join(c.Dir, "driver")+":/usr/bin:/bin")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	if out, failed := cmd.CombinedOutput(); err != nil || failed != nil {
		c.fail("%s: %s %q of %s: %v: %s", h.Name, program, words, user, failed, out)
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	return true
}

// attachAndDetach changes one attachment and finds it as it left it: no other update undoes it.
func (c *crowded) attachAndDetach(h *sshd.Host, env *testfleet.Env, device snapshot.DeviceIndex) {
	c.until(func(round int) {
		for _, verb := range []string{"attach", "detach"} {
			if !c.run(h, string(env.Username), round, "devices", verb, "--eid", string(env.EID), "--index", device.String()) {
				return
			}
			var attached, registered bool
			err := h.Update(func(files *state.Files) error {
				attached, registered = files.Device(device).Attachment(env.EID) != nil, files.Environment(env.EID) != nil
				return nil
			})
			if err != nil || attached != (verb == "attach") || !registered {
				c.fail("%s: round %d, after %s: attached %t, registered %t, %v", h.Name, round, verb, attached, registered, err)
			}
		}
	})
}

// comeAndGo has environments begin and end.
func (c *crowded) comeAndGo(h *sshd.Host, user string) {
	c.until(func(round int) {
		shell, err := h.StartJob(testfleet.Job{User: user})
		if err != nil {
			c.fail("%s: %v", h.Name, err)
			return
		}
		uid, _ := sshd.UID(user) // it has one
		eid := fmt.Sprint(shell.PID)
		if c.run(h, user, round, "envs", "activate", "--pid", eid, "--eid", eid, "--uid", fmt.Sprint(uid)) {
			err = h.Update(func(files *state.Files) error {
				if files.Environment(snapshot.EnvID(eid)) == nil {
					c.fail("%s: environment %s of %s was lost", h.Name, eid, user)
				}
				return nil
			})
		}
		if !shell.Running() {
			c.fail("%s: %s's shell %s was ended", h.Name, user, eid)
		}
		if err != nil || syscall.Kill(int(shell.PID), syscall.SIGKILL) != nil {
			c.fail("%s: %v", h.Name, err)
		}
		<-shell.Ended()
	})
}

// look looks at the fleet as somebody who may not use sudo, as a program: command lines of one process share --help.
func (c *crowded) look() {
	c.until(func(int) {
		for _, words := range [][]string{{"devices"}, {"envs"}, {"query", "--query", "hostname", "eid"}} {
			args := append([]string{"remote", "-F", c.SSHConfig(), "-H", "ours-[1-2],old-[1-2]", "-l", "carol"}, words...)
			var errs bytes.Buffer
			cmd := exec.Command(c.program, args...)
			cmd.Stderr = &errs
			if err := cmd.Run(); err != nil || errs.Len() > 0 {
				c.fail("%q: %v: %s", words, err, &errs)
			}
			c.looks++
		}
	})
}

func (c *crowded) enforce(more ...string) genvtest.Result {
	return genvtest.Run(c.t, append([]string{
		"remote", "-F", c.SSHConfig(), "-H", "ours-[1-2],old-[1-2]", "enforce", "--non-env-processes",
		"--max-devices-per-user", "8", "--max-devices-for-user", "carol=1", "--format", "json",
	}, more...)...)
}

// TestAMixedFleetUnderWriters: our controller enforces hosts with both kinds of genv while
// users change the state files of all with both kinds, and others look. No change is
// lost, all who break rules are found, and nothing of the others is ended.
func TestAMixedFleetUnderWriters(t *testing.T) {
	c := openCrowded(t)
	c.running.Go(c.look)
	r := c.enforce("--interval", "0.2", "--cycles", "8")
	c.end()
	require.Zero(t, r.Code, r.Err)
	require.Empty(t, c.failures)
	t.Logf("%d changes and %d looks in 8 cycles", c.changes, c.looks)
	require.Greater(t, c.changes, 40)

	ended := map[snapshot.PID]string{}
	for line := range strings.Lines(r.Out) {
		var cycle enforcement.CycleDocument
		require.NoError(t, json.Unmarshal([]byte(line), &cycle))
		require.Equal(t, map[snapshot.Hostname]agent.Via{
			"ours-1": agent.ViaStream, "ours-2": agent.ViaStream, "old-1": agent.ViaCommands, "old-2": agent.ViaCommands,
		}, cycle.Via)
		for _, sent := range cycle.Orders {
			require.True(t, sent.Sent, "%+v", sent)
			for _, o := range sent.Outcomes {
				require.Contains(t, []string{"terminated", "detached"}, string(o.Status), "%+v", o)
				ended[o.PID] = string(sent.Host)
			}
		}
	}
	for name, p := range c.guilty {
		require.Eventually(t, func() bool { return !p.Running() }, 20*time.Second, 10*time.Millisecond, name)
		if strings.Contains(name, "ours") {
			require.Contains(t, ended, p.PID, name)
		}
	}
	for name, p := range c.honest {
		require.True(t, p.Running(), name)
	}
	carols := 0
	for _, h := range c.Hosts() {
		devices := genvtest.Devices(t, h)
		for _, device := range []snapshot.DeviceIndex{0, 2} {
			require.Len(t, devices[device].Attachments, 1, h.Name)
		}
		carols += len(devices[4].Attachments) + len(devices[5].Attachments)
	}
	require.Equal(t, 1, carols)
	after := c.enforce("--interval", "0", "--dry-run", "--exit-code")
	require.Zero(t, after.Code, "nothing is left to do: %s", after.Out)
}

// ssh runs what a controller of 1.4.3 runs on a host, by the system's own ssh.
func ssh(t *testing.T, f *sshd.Fleet, host, stdin string, words ...string) (stdout, stderr string) {
	t.Helper()
	cmd := exec.Command("ssh", append([]string{"-F", f.SSHConfig(), host}, words...)...)
	cmd.Stdin = bytes.NewReader([]byte(stdin))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Run(), errs.String())
	return out.String(), errs.String()
}

// requireKeys checks the keys of an object as 1.4.3 would.
func requireKeys(t *testing.T, data json.RawMessage, keys ...string) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(data, &fields))
	require.Len(t, fields, len(keys), string(data))
	for _, key := range keys {
		require.Contains(t, fields, key, string(data))
	}
	return fields
}

func first(t *testing.T, data json.RawMessage) json.RawMessage {
	var items []json.RawMessage
	require.NoError(t, json.Unmarshal(data, &items))
	require.NotEmpty(t, items)
	return items[0]
}

// TestAControllerOf143DrivesOurHosts: exact sets of keys, an order in Python's spelling on stdin, its lines on stdout.
func TestAControllerOf143DrivesOurHosts(t *testing.T) {
	t.Parallel()
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	h := f.Host("gpu-01")
	env := genvtest.Activate(t, h, testfleet.Environment{User: "alice", Devices: []snapshot.DeviceIndex{0}})
	inside := genvtest.StartJob(t, h, testfleet.Job{User: "alice", Env: []string{env.Var()}, Uses: []testfleet.Use{{Device: 0, MiB: 10}}})
	outside := genvtest.StartJob(t, h, testfleet.Job{User: "bob", Uses: []testfleet.Use{{Device: 5, MiB: 640}}})
	_, err := h.StartJob(testfleet.Job{User: "bob", Bare: true, Uses: []testfleet.Use{{Device: 6, MiB: -1}}})
	require.NoError(t, err, "its memory is unknown, which 1.4.3 has no word for")

	out, warnings := ssh(t, f, "gpu-01", "", "sudo", "genv", "usage", "snapshot")
	whole := requireKeys(t, json.RawMessage(out), "processes", "envs", "devices")
	process := first(t, requireKeys(t, whole["processes"], "processes")["processes"])
	usage := first(t, requireKeys(t, process, "pid", "used_gpu_memory", "eid")["used_gpu_memory"])
	requireKeys(t, usage, "index", "gpu_memory")
	environment := first(t, requireKeys(t, whole["envs"], "envs")["envs"])
	fields := requireKeys(t, environment, "eid", "uid", "creation", "username", "config", "pids", "kernel_ids")
	requireKeys(t, fields["config"], "name", "gpu_memory", "gpus")
	device := first(t, requireKeys(t, whole["devices"], "devices")["devices"])
	attachment := first(t, requireKeys(t, device, "index", "total_memory", "attachments")["attachments"])
	requireKeys(t, attachment, "eid", "gpu_memory", "time")
	s, err := snapshot.DecodeSnapshot([]byte(out))
	require.NoError(t, err)
	require.Len(t, s.Processes, 2, "what is unknown is left out, and said on stderr")
	require.Contains(t, warnings, "is unknown")

	input := fmt.Sprintf(`{"terminate": {"processes": [{"pid": %d, "used_gpu_memory": [{"index": 5, "gpu_memory": "640mi"}], "eid": null}]}, `+
		`"detach": {"0": {"envs": [%s]}}}`, outside.PID, environment)
	out, _ = ssh(t, f, "gpu-01", input, "sudo", "genv", "usage", "execute")
	require.Equal(t, fmt.Sprintf("Detaching environment %s of user alice from device 0\n"+
		"Terminating process %d from environment N/A that is running on GPU(s) 5\n", env.EID, outside.PID), out)
	<-outside.Ended()
	require.True(t, inside.Running())

	out, warnings = ssh(t, f, "gpu-01", input, "sudo", "genv", "usage", "execute")
	require.Empty(t, out, "an order that is sent again finds nothing left to do")
	require.Empty(t, warnings)
}

// TestOrdersThatDoNotMatch: not a single one of these processes may get a signal.
func TestOrdersThatDoNotMatch(t *testing.T) {
	t.Parallel()
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	h := f.Host("gpu-01")
	env := genvtest.Activate(t, h, testfleet.Environment{User: "alice", Devices: []snapshot.DeviceIndex{0}})
	inside := genvtest.StartJob(t, h, testfleet.Job{User: "alice", Env: []string{env.Var()}, Uses: []testfleet.Use{{Device: 0, MiB: 10}}})
	idle := genvtest.StartJob(t, h, testfleet.Job{User: "bob"})
	for name, process := range map[string]string{
		"another device":      fmt.Sprintf(`{"pid": %d, "used_gpu_memory": [{"index": 3, "gpu_memory": "10mi"}], "eid": "%s"}`, inside.PID, env.EID),
		"another environment": fmt.Sprintf(`{"pid": %d, "used_gpu_memory": [{"index": 0, "gpu_memory": "10mi"}], "eid": null}`, inside.PID),
		"no device any more":  fmt.Sprintf(`{"pid": %d, "used_gpu_memory": [{"index": 0, "gpu_memory": "10mi"}], "eid": null}`, idle.PID),
		"a shell, not a job":  fmt.Sprintf(`{"pid": %d, "used_gpu_memory": [{"index": 0, "gpu_memory": "10mi"}], "eid": "%s"}`, env.Shell.PID, env.EID),
		"PID 1":               `{"pid": 1, "used_gpu_memory": [{"index": 0, "gpu_memory": "10mi"}], "eid": null}`,
		"a kernel thread":     `{"pid": 2, "used_gpu_memory": [{"index": 0, "gpu_memory": "10mi"}], "eid": null}`,
	} {
		t.Run(name, func(t *testing.T) {
			out, warnings := ssh(t, f, "gpu-01", `{"terminate": {"processes": [`+process+`]}, "detach": {}}`, "sudo", "genv", "usage", "execute")
			require.Empty(t, out)
			require.NotEmpty(t, warnings, "it is said why nothing was done")
		})
	}
	for _, p := range []*testfleet.Process{inside, idle, env.Shell} {
		require.True(t, p.Running())
	}
}
