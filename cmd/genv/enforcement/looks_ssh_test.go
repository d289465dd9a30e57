package enforcement_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// GPU 0 leaves the list, and the others get other indices: what is attached to them is unknown until it is attached
// again, and no honest job ends, nor one of a shell that doesn't know.
func TestGPUsThatAreRenumbered(t *testing.T) {
	t.Parallel()
	b := openTampered(t, "gpu-01")
	alice, bob := b.activate("gpu-01", "alice", 0), b.activate("gpu-01", "bob", 1)
	honest := b.job("gpu-01", testfleet.Job{User: "bob", Env: []string{bob.Var()}, Uses: using(1)})
	shell := b.shell("gpu-01", "carol")
	require.Contains(t, shell("genv activate; genv attach --index 5"), "Attached GPU 5 (H100 80GB HBM3)")
	require.Zero(t, b.enforce("gpu-01").Code, "root's look notes which GPU is which")

	drained := func(fault gpus.Fault) {
		require.NoError(t, b.Host("gpu-01").ChangeDriver(func(d *gpus.Driver) { d.Devices[0].Fault = fault }))
	}
	drained(gpus.Drained)
	later := b.job("gpu-01", testfleet.Job{User: "bob", Env: []string{bob.Var()}, Uses: using(2)}) // by index 1
	outside := b.job("gpu-01", testfleet.Job{User: "no-genv", Env: genvtest.Outside, Uses: using(3)})
	for range 2 {
		r := b.enforce("gpu-01", "--non-env-processes").OK(t)
		require.True(t, honest.Running() && later.Running(), r.Out)
		require.Contains(t, r.Err, "GPU 1 was another GPU since environment "+string(bob.EID)+" attached it")
		require.Contains(t, r.Err, "until it is attached again (genv attach --refresh in its shell)")
		if outside != nil {
			b.ended(r, outside) // rules hold on the others
			outside = nil
		}
	}
	require.Contains(t, shell("genv attach --refresh; echo devices $CUDA_VISIBLE_DEVICES"), "devices 5\n")
	r := b.enforce("gpu-01", "--non-env-processes")
	require.NotContains(t, r.Err, "GPU 5 was another GPU")
	require.Contains(t, r.Err, "GPU 0 was another GPU since environment "+string(alice.EID))

	drained("")
	r = b.enforce("gpu-01", "--non-env-processes")
	require.True(t, honest.Running() && later.Running(), r.Out+r.Err)
	require.Contains(t, r.Err, "GPU 1 was another GPU since environment "+string(bob.EID))
}

// shell is an interactive shell of a user, which runs commands and answers with what they print.
func (b *tampered) shell(host, user string) (run func(commands string) string) {
	b.t.Helper()
	ssh := exec.CommandContext(b.t.Context(), "ssh", "-F", b.SSHConfig(), "-l", user, host, `exec bash -c 'eval "$(genv shell --init --shell bash)"; while read -r c; do eval "$c" 2>&1; echo .; done'`)
	in, out := proctest.StartPiped(b.t, ssh)
	b.t.Cleanup(func() { _, _ = in.Close(), ssh.Wait() })
	lines := bufio.NewScanner(out)
	return func(commands string) (printed string) {
		proctest.Try(fmt.Fprintln(in, commands)).OK(b.t)
		for lines.Scan() && lines.Text() != "." {
			printed += lines.Text() + "\n"
		}
		return printed
	}
}

// The time of an attachment is what a user wrote, with whatever TZ: root's looks bound its age.
// genv writes it in the machine's zone, also where logins and the controller's have a TZ.
func TestLeasesByRootsLooks(t *testing.T) {
	t.Parallel()
	b := &tampered{sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t), Env: []string{"TZ=Asia/Tokyo"}}), t}
	hour := b.policy("defaults: {max-duration: 1h, non-env-processes: false}\n")
	b.enforce("gpu-01", "--policy", hour).OK(t)
	for i, lie := range []time.Duration{-8 * time.Hour, 9 * time.Hour} {
		genvtest.Activate(t, b.Host("gpu-01"), testfleet.Environment{User: "alice", Devices: []snapshot.DeviceIndex{snapshot.DeviceIndex(i)}, At: time.Now().Add(lie)})
	}
	bob := b.activate("gpu-01", "bob")
	attach := exec.Command("ssh", "-F", b.SSHConfig(), "-l", "bob", "gpu-01", `[ "$TZ" = Asia/Tokyo ] && genv devices attach --index 2 --eid `+string(bob.EID))
	proctest.Output(t, attach)
	devices := genvtest.Devices(t, b.Host("gpu-01"))
	require.WithinDuration(t, time.Now(), devices[2].Attachments[0].Time.In(system.Now().Location()), time.Minute)
	r := b.enforce("gpu-01", "--policy", hour).OK(t)
	require.Empty(t, r.Out)
	notes := proctest.Try(filepath.Glob(filepath.Join(b.Host("gpu-01").Root(), "*", "seen.json"))).OK(t)
	require.Len(t, notes, 1)
	since := regexp.MustCompile(`"since":\d+`).ReplaceAllString(genvtest.Read(t, notes[0]), `"since":1`) // since the boot
	require.NoError(t, os.WriteFile(notes[0], []byte(since), 0o600))
	r = b.enforce("gpu-01", "--policy", b.policy("defaults: {max-duration: 1m, non-env-processes: false}\n")).OK(t)
	require.Contains(t, r.Out, "from device 0")
	require.Contains(t, r.Out, "from device 1")
	require.Contains(t, r.Out, "from device 2")
}

// TestDesktops: what draws on an active display is left alone, on hosts with this genv and with 1.4.3.
// nvidia-smi is asked for it once a look, and only where a display is active.
func TestDesktops(t *testing.T) {
	t.Parallel()
	f := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "ours", GPUs: 3}, {Name: "old", GPUs: 3, Rights: sshd.MaySudo143}}, Genv: genvtest.Program(t)})
	dir, asked := filepath.Join(f.Dir, "driver"), filepath.Join(t.TempDir(), "asked")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "real"), 0o755))
	require.NoError(t, os.Rename(filepath.Join(dir, "nvidia-smi"), filepath.Join(dir, "real", "nvidia-smi")))
	answers := func(how string) {
		require.NoError(t, os.WriteFile(asked, nil, 0o666))
		require.NoError(t, os.Chmod(asked, 0o666))
		script := fmt.Sprintf("#!/bin/sh\ncase \"$*\" in *-x*) echo >>%s; %s;; esac\nexec %s \"$@\"\n", asked, how, filepath.Join(dir, "real", "nvidia-smi"))
		require.NoError(t, proctest.WriteProgram(filepath.Join(dir, "new"), []byte(script)))
		require.NoError(t, os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "nvidia-smi")))
	}
	for dir := filepath.Dir(asked); dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		require.NoError(t, os.Chmod(dir, 0o755)) // logins write to it
	}
	ends := func(p *testfleet.Process, why string) { // genv 1.4.3 doesn't wait for it
		require.Eventually(t, func() bool { return !p.Running() }, 10*time.Second, 10*time.Millisecond, why)
	}
	for _, h := range f.Hosts() {
		enforce := func(rules string) (calls int) {
			policy := policyFile(t, "defaults: {"+rules+"}\n")
			r := genvtest.Run(t, "remote", "enforce", "-F", f.SSHConfig(), "-H", h.Name, "--interval", "0", "--policy", policy, "--command-timeout", "10").OK(t)
			t.Log(r.Out, r.Err)
			return len(proctest.ReadFile(t, asked))
		}
		draws := func(device snapshot.DeviceIndex) *testfleet.Process {
			p := genvtest.StartOutside(t, h, "bob", testfleet.Use{Device: device, MiB: 25})
			require.NoError(t, h.ChangeDriver(func(d *gpus.Driver) {
				d.Devices[0].Display = true
				d.Apps[len(d.Apps)-1].Type = "C+G"
			}))
			return p
		}
		env := genvtest.Activate(t, h, testfleet.Environment{User: "alice", Devices: []snapshot.DeviceIndex{2}})
		honest := genvtest.StartJob(t, h, testfleet.Job{User: "alice", Env: []string{env.Var()}, Uses: []testfleet.Use{{Device: 2, MiB: 25}}})
		answers("")
		require.Zero(t, enforce("non-env-processes: true"), "no display is active")
		desktop, context := draws(0), draws(1)
		require.Equal(t, 1, enforce("non-env-processes: false"), "types come with the snapshot")
		answers("exec sleep 1000")
		carol := genvtest.Activate(t, h, testfleet.Environment{User: "carol", Devices: []snapshot.DeviceIndex{2}})
		require.Equal(t, 1, enforce("non-env-processes: true}\noverrides:\n  - {users: [carol], set: {max-devices-per-user: 0}"))
		require.True(t, desktop.Running(), "there is no answer yet")
		ends(context, "any job can open an EGL context: no screen is active there")
		require.Empty(t, snapshot.AttachedTo(genvtest.Devices(t, h), carol.EID), "the other questions go on")
		answers("")
		require.Equal(t, 1, enforce("non-env-processes: true"), "one call")
		require.True(t, desktop.Running())
		answers("exit 1")
		require.Equal(t, 1, enforce("non-env-processes: true"))
		require.True(t, desktop.Running(), "users can make it fail, and whose desktop it is isn't known then")
		answers("")
		require.Equal(t, 1, enforce("non-env-processes: true, graphics: judge"))
		ends(desktop, "a policy says so")
		require.True(t, honest.Running())
	}
}

// TestGraphicsContexts: a process that only draws isn't in the list of compute processes, and isn't judged. Names
// that nvidia-smi would print as XML of their own change neither that nor what a desktop is.
func TestGraphicsContexts(t *testing.T) {
	t.Parallel()
	f := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "ours", GPUs: 3}}, Genv: genvtest.Program(t)})
	h := f.Hosts()[0]
	start := func(user, name, kind string, device snapshot.DeviceIndex) *testfleet.Process {
		p := genvtest.StartOutside(t, h, user, testfleet.Use{Device: device, MiB: 25})
		require.NoError(t, h.ChangeDriver(func(d *gpus.Driver) {
			d.Devices[0].Display = true
			d.Apps[len(d.Apps)-1].Type, d.Apps[len(d.Apps)-1].Name = kind, name
		}))
		return p
	}
	holder := genvtest.StartJob(t, h, testfleet.Job{User: "alice", Env: genvtest.Outside}) // such as nvtop
	uuid := make([]string, 3)
	require.NoError(t, h.ChangeDriver(func(d *gpus.Driver) {
		for i := range d.Devices {
			uuid[i] = d.Devices[i].UUID
		}
	}))
	const end, begin = "x</process_name>\n</process_info></processes></gpu>\n", "\n<gpu><processes><process_info><process_name>x"
	forged := func(uuid, says string) string {
		return end + "<gpu>\n<uuid>" + uuid + "</uuid>\n" + says + "\n</gpu>" + begin
	}
	vulkan := start("bob", "vkcube", "G", 1)
	before := start("bob", forged(uuid[0], "<display_active>Disabled</display_active>")+"\n<!--", "C", 0)
	desktop := start("alice", "kwin", "C+G", 0)
	after := start("bob", "-->"+forged(uuid[1], fmt.Sprintf("<processes><process_info>\n<pid>%d</pid>\n<type>G</type>\n</process_info></processes>", holder.PID)), "C", 0)
	policy := policyFile(t, "defaults: {non-env-processes: true, env-devices: true}\n")
	r := genvtest.Run(t, "remote", "enforce", "-F", f.SSHConfig(), "-H", "ours", "--interval", "500ms", "--cycles", "4", "--events", "off", "--policy", policy)
	require.True(t, vulkan.Running() && holder.Running() && desktop.Running(), r.Out+r.Err)
	require.False(t, before.Running() || after.Running(), r.Out+r.Err)
}

// uses has nvidia-smi of a host list a process that the fleet has not started.
func (b *tampered) uses(host string, pid snapshot.PID, device int, start snapshot.StartTime) {
	h := b.Host(host)
	listed := proctest.Try(gpus.Read(h.GPUs)).OK(b.t)
	listed.Apps = append(listed.Apps, gpus.App{PID: int(pid), Start: uint64(start), Device: device, Name: "python3", UsedMiB: new(int64(10))})
	require.NoError(b.t, listed.Write(h.GPUs))
}

// A process that its user's file system holds is named, and ended if the policy says so. Others are judged in time.
func TestUnreadableProcesses(t *testing.T) {
	b := openTampered(t, "gpu-01")
	pid, _ := proctest.Stall(t, false)
	stat := proctest.Try(proc.FS{}.Stat(pid)).OK(t)
	b.activate("gpu-01", "alice", 1)
	b.uses("gpu-01", pid, 0, stat.Start)
	honest := b.job("gpu-01", testfleet.Job{User: "carol", Uses: using(2)})

	const found = "can't be judged: its environment and memory map are stalled by a FUSE file system of uid "
	var r genvtest.Result
	until := func(text, policy string) (took time.Duration) { // a busy machine may not have the time to find out what stalls it
		genvtest.Eventually(t, text, func() bool {
			began := time.Now()
			r = b.enforce("gpu-01", "--policy", b.policy(policy))
			took = time.Since(began)
			return strings.Contains(r.Out+r.Err, text)
		})
		return took
	}
	require.Less(t, until(found, "defaults: {non-env-processes: true}\n"), 10*time.Second)
	require.False(t, honest.Running(), "it is outside of every environment: "+r.Out+r.Err)

	until("a thread waits for a FUSE file system, and ends when its server does", "defaults: {unreadable-processes: end, grace: 1s, kill: true}\n")
	require.NotContains(t, r.Out+r.Err, "sick GPU")
}

// TestNamesOfADirectory: ann@corp.example logs in, whom sudoers knows by the uid, and CORP\dana is named and exempted.
func TestNamesOfADirectory(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	dir := t.TempDir()
	enforce := func(policy string) genvtest.Result {
		path := filepath.Join(dir, "policy.yaml")
		require.NoError(t, os.WriteFile(path, []byte("defaults: {non-env-processes: true, grace: 5s}\n"+policy), 0o600))
		return genvtest.Run(t, "remote", "-F", f.SSHConfig(), "-H", "ann@corp.example@gpu-01", "enforce", "--interval", "0", "--policy", path, "--state-dir", dir)
	}
	start := func(user string) *testfleet.Process {
		return genvtest.StartOutside(t, f.Host("gpu-01"), user, testfleet.Use{Device: 0, MiB: 10})
	}
	dana, bob := start(sshd.Dana), start("bob")
	r := enforce(`exempt: {users: ['CORP\dana']}` + "\n").OK(t)
	require.False(t, bob.Running(), r.Out)
	require.True(t, dana.Running(), r.Out)

	made := exempted(t, "--state-dir", dir, "--user", sshd.Dana, "--for", "1h", "--reason", "deadline")
	enforce("").OK(t)
	require.True(t, dana.Running())

	exempted(t, "--state-dir", dir, "--revoke", made.Exemptions[0].ID)
	r = enforce("")
	require.False(t, dana.Running(), r.Out)
	require.Contains(t, r.Out, `(user "CORP\dana", sleep`)
}
