package fleet_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// mixedFleet is a host with our genv and one with 1.4.3; alice has an environment with device 0 on each.
func mixedFleet(t *testing.T) (f *sshd.Fleet, envs map[string]*testfleet.Env) {
	hosts := []sshd.HostOptions{{Name: "ours", Rights: sshd.MaySudo}, {Name: "old", Rights: sshd.MaySudo143}}
	f = sshd.Start(t, sshd.Options{Hosts: hosts, Genv: genvtest.Program(t), AcceptEnv: []string{"GENV_PREACTIVATE*"}})
	envs = map[string]*testfleet.Env{}
	for _, h := range f.Hosts() {
		env := genvtest.Activate(t, h, testfleet.Environment{User: "alice", Config: snapshot.EnvConfig{Name: "my-env"}, Devices: []snapshot.DeviceIndex{0}})
		envs[h.Name] = env
	}
	return f, envs
}

// callsOfSudo puts a sudo first in the path of every login that refuses and notes what it was called with.
func callsOfSudo(t *testing.T, f *sshd.Fleet) (called func() string) {
	calls := filepath.Join(f.Dir, "calls")
	require.NoError(t, os.WriteFile(calls, nil, 0o666))
	require.NoError(t, os.Chmod(calls, 0o666))
	script := fmt.Sprintf("#!/bin/sh\nprintf '%%s\\n' \"$*\" >>%s\necho sudo: a password is required >&2\nexit 1\n", calls)
	for _, folder := range []string{"bin", "bin143", "driver"} {
		if folder = filepath.Join(f.Dir, folder); proctest.WriteProgram(filepath.Join(folder, "sudo"), []byte(script)) != nil {
			require.NoDirExists(t, folder)
		}
	}
	return func() string {
		return genvtest.Read(t, calls)
	}
}

// TestLookingTakesNoSudo: bob sees what there is, and sudo is never called, which would log and mail its refusal.
func TestLookingTakesNoSudo(t *testing.T) {
	f, envs := mixedFleet(t)
	called := callsOfSudo(t, f)
	asBob := []string{"remote", "-F", f.SSHConfig(), "-H", "ours,old", "-l", "bob"}
	look := func(args ...string) genvtest.Result { return genvtest.Run(t, append(asBob, args...)...) }
	require.Equal(t, genvtest.Result{Out: "HOST,TOTAL,AVAILABLE\nours,8,7\nold,8,7\n"}, look("devices", "--format", "csv", "--no-summary"))
	r := look("envs", "--format", "csv", "--no-header", "--no-summary").OK(t)
	require.Regexp(t, fmt.Sprintf("^ours,%s,alice,my-env,.*\nold,%s,alice,my-env,.*\n$", envs["ours"].EID, envs["old"].EID), r.Out)
	require.Equal(t, genvtest.Result{Out: fmt.Sprintf("ours,%s\nold,%s\n", envs["ours"].EID, envs["old"].EID)}, look("query", "--name", "my-env", "--query", "hostname", "eid"))
	r = look("activate", "--gpus", "8")
	require.Equal(t, "genv: no host has 8 GPUs for this now; `genv remote gpus` shows what there is\n", r.Err, "both were asked")
	require.Empty(t, called())

	r = look("devices", "--processes")
	require.Equal(t, command.ExitNoneLeft, r.Code, "which takes sudo")
	require.Contains(t, called(), "-n genv usage snapshot\n")
}

// TestLookingWithoutGenvInPath: sudo finds genv on this host, and the login doesn't.
func TestLookingWithoutGenvInPath(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "gpu-01", Rights: sshd.OnlySnapshot}}, Genv: genvtest.Program(t)})
	called := callsOfSudo(t, f)
	genvtest.Run(t, "remote", "devices", "-F", f.SSHConfig(), "-H", "gpu-01").Exits(t, command.ExitNoneLeft, "genv-missing (1)", "next: install genv on the host where every login finds it (/usr/local/bin)")
	hosts := filepath.Join(t.TempDir(), "hosts.yaml")
	require.NoError(t, os.WriteFile(hosts, fmt.Appendf(nil, "hosts:\n- name: gpu-01\n  genv: %s/bin/genv\n", f.Dir), 0o644))
	r := genvtest.Run(t, "remote", "devices", "-F", f.SSHConfig(), "-H", hosts, "--no-header", "--no-summary")
	require.Equal(t, genvtest.Result{Out: "gpu-01                   8        8\n"}, r)
	require.Empty(t, called())
}

// TestEnforcementTakesRoot: a login without root is told what is missing on each host, with both kinds of genv.
func TestEnforcementTakesRoot(t *testing.T) {
	f, _ := mixedFleet(t)
	for _, host := range []string{"ours", "old"} {
		genvtest.StartOutside(t, f.Host(host), "bob", testfleet.Use{Device: 5, MiB: 10})
	}
	hosts := filepath.Join(t.TempDir(), "hosts.yaml")
	require.NoError(t, os.WriteFile(hosts, []byte("defaults:\n  sudo: false\nhosts: [ours, old]\n"), 0o644))
	for from, next := range map[string]string{
		"ours,old": "line `" + remote.SudoersLine("bob", filepath.Join(f.Dir, "bin", "genv")), // sudo refuses
		hosts:      "remove `sudo: false` for it from hosts.yaml",
	} {
		r := genvtest.Run(t, "remote", "enforce", "-F", f.SSHConfig(), "-H", from, "-l", "bob", "--interval", "0", "--non-env-processes", "--format", "json").Exits(t, command.ExitNoneLeft)
		document := genvtest.Decode[enforcement.CycleDocument](t, r)
		require.Empty(t, document.Findings)
		require.Len(t, document.Failed, 2)
		for _, failure := range document.Failed {
			require.Equal(t, remote.Sudo, failure.Class, failure.Error)
			require.Contains(t, strings.ReplaceAll(failure.NextStep, "/bin143/", "/bin/"), next, failure.Host)
		}
	}
}

// TestServeWithoutRoot: a login without root may look, and whatever order it sends is refused.
func TestServeWithoutRoot(t *testing.T) {
	t.Parallel()
	f, envs := mixedFleet(t)
	session := exec.Command("ssh", "-F", f.SSHConfig(), "-l", "bob", "ours", "genv", "usage", "serve", "--token", "t")
	in, out := proctest.StartPiped(t, session)
	stream := proctest.Try(agent.OpenStream(t.Context(), out, in, "t")).OK(t)
	require.ElementsMatch(t, []string{agent.RequestDevices, agent.RequestEnvironments, agent.RequestPing}, stream.Greeting.Capabilities)

	document := proctest.Try(stream.Call(t.Context(), agent.RequestDevices, nil)).OK(t)
	devices := proctest.Try(snapshot.DecodeDevices(document)).OK(t)
	require.Len(t, devices, 8)
	document = proctest.Try(stream.Call(t.Context(), agent.RequestEnvironments, nil)).OK(t)
	environments := proctest.Try(snapshot.DecodeEnvironments(document)).OK(t)
	require.Equal(t, envs["ours"].EID, environments[0].EID)
	printed, _ := ssh(t, f, "ours", "", "genv", "usage", "snapshot", "--type", "envs")
	require.Equal(t, printed, string(document)+"\n", "no more than the command of 1.4.3 prints")

	encoded := proctest.Try(snapshot.EncodeEnvironments(environments)).OK(t)
	body := fmt.Sprintf(`{"report": {"terminate": {"processes": []}, "detach": {"0": %s}}}`, encoded)
	for _, request := range []string{agent.RequestSnapshot, agent.RequestExecute, agent.RequestNotify, "nonsense"} {
		_, err := stream.Call(t.Context(), request, []byte(body))
		require.ErrorIs(t, err, agent.ErrRefused, request)
		require.ErrorContains(t, err, "without root")
	}
	devices = genvtest.Devices(t, f.Host("ours"))
	require.Len(t, devices[0].Attachments, 1)
	require.NoError(t, in.Close())
	require.NoError(t, session.Wait())
}

// TestExecuteWithoutRoot: `usage execute` gives a user no more than `genv devices detach` does.
func TestExecuteWithoutRoot(t *testing.T) {
	t.Parallel()
	f, envs := mixedFleet(t)
	document := proctest.Try(snapshot.EncodeEnvironments([]snapshot.Environment{envs["ours"].Environment})).OK(t)
	input := fmt.Sprintf(`{"terminate": {"processes": []}, "detach": {"0": %s}}`, document)
	forged := envs["ours"].Environment
	forged.UID = proctest.Try(sshd.UID("bob")).OK(t)
	document = proctest.Try(snapshot.EncodeEnvironments([]snapshot.Environment{forged})).OK(t)
	for name, input := range map[string]string{"of alice's": input, "forged": fmt.Sprintf(`{"terminate": {"processes": []}, "detach": {"0": %s}}`, document)} {
		printed, warnings := ssh(t, f, "ours", input, "-l", "bob", "genv", "usage", "execute")
		require.Empty(t, printed, name)
		require.NotEmpty(t, warnings, name)
		require.Len(t, genvtest.Devices(t, f.Host("ours"))[0].Attachments, 1, name)
	}
	printed, warnings := ssh(t, f, "ours", input, "-l", "alice", "genv", "usage", "execute")
	require.Equal(t, fmt.Sprintf("Detaching environment %s of user alice from device 0\n", envs["ours"].EID), printed, warnings)
}

// TestRemoteByOpenSSH: hosts that are reached by running ssh(1).
func TestRemoteByOpenSSH(t *testing.T) {
	f, _ := mixedFleet(t)
	remote := func(args ...string) genvtest.Result {
		cmd := exec.Command(genvtest.Program(t), append([]string{"remote", "-F", f.SSHConfig(), "-H", "ours,old", "--ssh", "openssh"}, args...)...)
		cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+f.Dir)
		return genvtest.Exec(t, cmd)
	}
	for _, args := range [][]string{
		{"devices"},
		{"gpus"},
		{"enforce", "--interval", "0", "--max-devices-per-user", "9"},
		{"enforce", "--interval", "1", "--cycles", "3", "--socket", "off", "--max-devices-per-user", "9"},
	} {
		r := remote(args...)
		require.Equal(t, 0, r.Code, "%v: %s%s", args, r.Out, r.Err)
	}
	require.Contains(t, remote("doctor", "--format", "json").Out, "connected by ssh(1)")
}
