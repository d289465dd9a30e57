package fleet_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/fleet"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/statedir"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

const fourHosts = `
defaults: {user: admin}
hosts:
  - {name: "gpu-[01-03]", address: "10.0.0.[1-3]", labels: {gpu: a100}}
  - {name: gpu-04, sudo: false, labels: {gpu: h100}}
`

func TestWhereFlagsComeFrom(t *testing.T) {
	const text = "username: top\nremote: {username: remote, exclude: gpu-01}\nhosts: 'gpu-0*'\n"
	hosts := "gpu-02,10.0.0.2,,remote,yes,gpu=a100\ngpu-03,10.0.0.3,,remote,yes,gpu=a100\ngpu-04,,,remote,no,gpu=h100\n"
	for _, test := range []struct{ name, config, line, want string }{
		{"no file", "", "remote hosts -H gpu-04", "gpu-04,,,admin,no,gpu=h100\n"},
		{"no file, and no hosts: all", "", "remote hosts -x gpu-[01-03]", "gpu-04,,,admin,no,gpu=h100\n"},
		{"the file", text, "remote hosts", hosts},
		{"a flag behind the command", text, "remote hosts -l me -H gpu-01", "gpu-01,10.0.0.1,,me,yes,gpu=a100\n"},
		{"a flag before the command", text, "remote -l me -H gpu-01 hosts", "gpu-01,10.0.0.1,,me,yes,gpu=a100\n"},
		{"one on each side", text, "remote -H gpu-01 hosts --username me", "gpu-01,10.0.0.1,,me,yes,gpu=a100\n"},
		{"a value that is the default", text, "remote hosts --username= -H gpu-04", "gpu-04,,,admin,no,gpu=h100\n"},
		{"-x alone replaces only that", text, "remote hosts -x gpu-0[1-3]", "gpu-04,,,remote,no,gpu=h100\n"},
		{"without sudo", "no-sudo: true\n", "remote hosts -H gpu-01", "gpu-01,10.0.0.1,,admin,no,gpu=a100\n"},
		{"with sudo for once", "no-sudo: true\n", "remote hosts -H gpu-01 --no-sudo=false", "gpu-01,10.0.0.1,,admin,yes,gpu=a100\n"},
		{"another command's section", "gpus: {username: x}\n", "remote hosts -H gpu-01", "gpu-01,10.0.0.1,,admin,yes,gpu=a100\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			genvtest.Configure(t, command.HostsFile, fourHosts, command.ConfigFile, test.config)
			r := genvtest.Run(t, append(strings.Fields(test.line), "--format", "csv", "--no-header")...)
			require.Equal(t, genvtest.Result{Out: test.want}, r)
		})
	}
}

func TestTheUsersFileIsBeforeTheSystems(t *testing.T) {
	etc := genvtest.Configure(t, command.HostsFile, fourHosts, command.ConfigFile, "username: etc\n")
	r := genvtest.Run(t, "remote", "hosts", "-v", "-H", "gpu-01", "--format", "csv", "--no-header")
	require.Equal(t, "gpu-01,10.0.0.1,,etc,yes,gpu=a100\n", r.Out)
	require.Contains(t, r.Err, "set by the configuration")
	require.Contains(t, r.Err, "from="+etc+"/config.yaml:1:1")
}

func TestNoHostsAreNamed(t *testing.T) {
	dir := genvtest.Configure(t, command.HostsFile, fourHosts)
	r := genvtest.Run(t, "remote", "enforce", "--interval", "0")
	require.Equal(t, genvtest.Result{Code: 1, Err: "genv: no hosts are selected: genv remote enforce takes only hosts that are named; write -H a,b or -H @all, or `hosts: \"@all\"` under `enforce:` in " + dir + "/config.yaml\n"}, r)
	r = genvtest.Run(t, "remote", "enforce", "--interval", "0", "-H", "!gpu-01")
	require.Equal(t, genvtest.Result{Code: 1, Err: "genv: no hosts are selected; use -H a,b or --hostfile FILE, or -H @all for all of hosts.yaml\n"}, r, "nor by exclusion")
	t.Setenv(command.ConfigVariable, "off")
	r = genvtest.Run(t, "remote", "enforce", "--interval", "0")
	require.Equal(t, genvtest.Result{Code: 1, Err: "genv: no hosts are selected: genv remote enforce takes only hosts that are named; write -H a,b or --hostfile FILE\n"}, r, "no file is read")
	t.Setenv(command.ConfigVariable, dir)

	empty := genvtest.Configure(t)
	for _, name := range []string{"gpus", "devices", "envs", "query --query eid", "wait", "top --plain --once --socket off", "watch --socket " + empty + "/s", "monitor", "activate", "hosts", "doctor"} {
		r = genvtest.Run(t, append([]string{"remote"}, strings.Fields(name)...)...).Exits(t, command.ExitFailed)
		require.Contains(t, r.Err, "no hosts are selected; use -H a,b or --hostfile FILE, or list the hosts in "+empty+"/hosts.yaml, which doesn't exist yet\n", name)
	}
}

// The hosts of the default inventory are asked, with the default policy and configuration.
func TestDefaultFilesAreUsed(t *testing.T) {
	s := &snapshot.Snapshot{
		Devices:      []snapshot.Device{{Index: 0, TotalMemory: snapshot.MiB(1), Attachments: []snapshot.Attachment{{EID: "5", Time: genvtest.Date(t, "20/11/2026 10:00:00")}}}},
		Environments: []snapshot.Environment{{EID: "5", UID: 1001, Username: "alice", Creation: genvtest.Date(t, "20/11/2026 10:00:00"), PIDs: []snapshot.PID{77}}},
	}
	enforced := genvhost.New(s)
	host := inprocess.Func(func(ctx context.Context, r *inprocess.Request) int {
		if strings.Contains(r.Line, "--type") {
			return genvhost.New(s).Old().Handle(ctx, r)
		}
		return enforced.Handle(ctx, r)
	})
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "gpu-01", Handler: host}, &inprocess.Server{Name: "gpu-02", Handler: host})
	config := "ssh-config: " + f.SSHConfig() + "\nenforce: {hosts: 'label:gpu=a*', interval: 0, web: '127.0.0.1:1'}\n"
	dir := genvtest.Configure(t, command.HostsFile, "hosts: [{name: gpu-01, labels: {gpu: a100}}, gpu-02]", command.ConfigFile, config,
		command.PolicyFile, "defaults: {max-devices-per-user: 0}\n")

	r := genvtest.Run(t, "remote", "devices", "--format", "csv", "--no-header", "--no-summary")
	require.Equal(t, genvtest.Result{Out: "gpu-01,1,0\ngpu-02,1,0\n"}, r)

	r = genvtest.Run(t, "remote", "enforce", "--dry-run", "--exit-code").Exits(t, command.ExitWork)
	require.Contains(t, r.Out, "User alice is using 1 devices")
	require.NotContains(t, r.Out, "gpu-02")
	require.Regexp(t, "INF the default policy file is used; --policy none uses none policy="+dir+"/policy.yaml\n", r.Err)

	r = genvtest.Run(t, "remote", "enforce", "--dry-run", "--exit-code", "--policy", "none").OK(t)
	require.NotContains(t, r.Out+r.Err, "policy")

	other := filepath.Join(t.TempDir(), "other.yaml")
	require.NoError(t, os.WriteFile(other, []byte("defaults: {max-devices-per-user: 1}\n"), 0o600))
	genvtest.Run(t, "remote", "enforce", "--dry-run", "--exit-code", "--policy", other).OK(t)

	r = genvtest.Run(t, "policy", "explain", "--format", "csv")
	require.Contains(t, r.Out, "max-devices-per-user,0,")
	require.Contains(t, genvtest.Run(t, "policy", "explain", "--policy", "none", "--format", "csv").Out, "max-devices-per-user,off,")
	require.Equal(t, dir+"/policy.yaml: OK\n", genvtest.Run(t, "policy", "check").Out)
}

func TestWrongConfiguration(t *testing.T) {
	for _, test := range []struct {
		name, file, text, line, want string
	}{
		{"an unknown key", command.ConfigFile, "fanot: 3", "remote gpus -H a", `config.yaml:1:1: unknown key "fanot"; did you mean "fanout"?`},
		{"what is asked for in one run", command.ConfigFile, "insecure-ignore-host-keys: true", "remote gpus -H a", "it is asked for in a single run"},
		{"also for enforce here", command.ConfigFile, "fanot: 3", "enforce --interval 0", "unknown key"},
		{"also for policies", command.ConfigFile, "fanot: 3", "policy explain", "unknown key"},
		{"a value that the command refuses", command.ConfigFile, "enforce: {web: nowhere}", "remote enforce -H a", "/config.yaml:1:11)"},
		{"hosts that there aren't", command.ConfigFile, "hosts: '@lab'", "remote gpus", "host group @lab: no hosts.yaml was found that could define it; name one with --hostfile (--host is set at "},
		{"a wrong policy", command.PolicyFile, "defaults: {env-device: true}", "remote enforce -H a --interval 0", `policy.yaml:1:12: unknown key "env-device"`},
		{"a wrong inventory", command.HostsFile, "host: []", "remote gpus", `hosts.yaml:1:1: unknown key "host"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			genvtest.Configure(t, test.file, test.text)
			r := genvtest.Run(t, strings.Fields(test.line)...).Exits(t, command.ExitFailed, test.want)
			require.Empty(t, r.Out)
		})
	}
	for _, name := range []string{command.ConfigFile, command.PolicyFile, command.HostsFile} {
		t.Run("others may write "+name, func(t *testing.T) {
			dir := genvtest.Configure(t, name, "hosts: [a]")
			require.NoError(t, os.Chmod(filepath.Join(dir, name), 0o606))
			genvtest.Run(t, "remote", "enforce", "-H", "a", "--interval", "0").Exits(t, command.ExitFailed, name+" may be changed by every user: run `chmod o-w "+dir+"/"+name+"`")
		})
	}
}

// What config.yaml may set is a flag of the commands, and what it may not isn't forgotten.
func TestSettingsAreFlags(t *testing.T) {
	var known []string
	for _, cmd := range fleet.Commands(command.Program{Getenv: os.Getenv}, "") {
		for _, sub := range cmd.Subcommands {
			keys := command.ConfigKeys(onHosts(), sub.Name)
			if cmd.Name != "remote" {
				keys = nil
			}
			for _, key := range keys {
				flag := key
				if key == "hosts" {
					flag = "host"
				}
				require.True(t, command.Takes(sub, flag), "%s has no flag --%s", sub.Name, flag)
			}
			for _, flag := range sub.Flags {
				known = append(known, flag.Names()...)
			}
			for _, flag := range []string{"insecure-ignore-host-keys", "act-unrecorded", "allow-actions", "format", "env-devices", "dry-run"} {
				require.NotContains(t, keys, flag)
			}
		}
	}
	for _, section := range []string{"", "remote"} {
		for _, key := range command.ConfigKeys(onHosts(), section) {
			require.True(t, key == "hosts" || slices.Contains(known, key), key)
		}
	}
}

// onHosts are the commands below `genv remote`.
func onHosts() []*cli.Command { return fleet.OnHosts(command.Program{Getenv: os.Getenv}) }

func TestHostsAsJSON(t *testing.T) {
	genvtest.Configure(t, command.HostsFile, fourHosts)
	document := genvtest.Decode[fleet.HostsDocument](t, genvtest.Run(t, "remote", "hosts", "-H", "label:gpu=h*,new:22", "--format", "json"))
	text := proctest.Try(json.Marshal(document)).OK(t)
	require.JSONEq(t, `{"schema": "genv.remote.hosts/1", "hosts": [
		{"host": "gpu-04", "user": "admin", "genv": "genv", "sudo": false, "labels": {"gpu": "h100"}},
		{"host": "new", "port": 22, "genv": "genv", "sudo": true, "labels": {}}]}`, string(text))
	require.Contains(t, genvtest.Run(t, "remote", "hosts").Out, "\n\n4 hosts selected; what is empty is left to ssh_config\n")
}

// TestGPUsOfAMachineWithoutADriver: where hosts are configured, these have the GPUs.
func TestGPUsOfAMachineWithoutADriver(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	dir := genvtest.Configure(t, command.HostsFile, fourHosts)
	require.Contains(t, genvtest.Run(t, "gpus").Err, "`genv remote gpus` lists the GPUs of the hosts in "+dir)
	t.Setenv(command.ConfigVariable, "off")
	require.Contains(t, genvtest.Run(t, "gpus").Err, "install the NVIDIA driver")
}

// The names in a policy that nothing knows.
func TestPolicyCheckWarns(t *testing.T) {
	const text = "groups: {staff: [root, nobody-by-this-name]}\noverrides:\n  - {hosts: [gpu-01, gqu-01], labels: {gpu: h100}, users: [\"@staff\"], set: {idle: false}}\n"
	dir := genvtest.Configure(t, command.HostsFile, fourHosts, command.PolicyFile, text)
	file := dir + "/policy.yaml"
	r := genvtest.Run(t, "policy", "check")
	require.Equal(t, genvtest.Result{Out: file + ": OK\n", Err: file + ":3:22: warning: host \"gqu-01\" is not in the inventory; did you mean \"gpu-01\"?\n" +
		file + ": warning: 1 user has no account on this machine: nobody-by-this-name; the hosts may know them\n"}, r)

	r = genvtest.Run(t, "policy", "check", "--strict", file).Exits(t, command.ExitFailed)
	require.Empty(t, r.Out)
	require.Contains(t, r.Err, "policy.yaml: 1 warning, which --strict makes an error\n")

	r = genvtest.Run(t, "policy", "check", "--strict", "-H", "gqu-01,gpu-[01-04],label:gpu", "--format", "json")
	document := genvtest.Decode[fleet.CheckDocument](t, r)
	require.Zero(t, r.Code, "the user may be on the hosts alone")
	require.True(t, document.OK)
	require.Len(t, document.Warnings, 1, "the host is named")
	require.Equal(t, "nobody-by-this-name", document.Warnings[0].Name)
	require.Contains(t, r.Out, `"errors":[]`)

	require.NoError(t, os.WriteFile(file, []byte("limits: {max-detachments: 1000001}\nunreachable: 3\n"), 0o600))
	r = genvtest.Run(t, "policy", "check", "--format", "json").Exits(t, command.ExitFailed)
	require.NoError(t, json.Unmarshal([]byte(r.Out), &document))
	require.Len(t, document.Errors, 2)
	require.Equal(t, 1, document.Errors[0].Line)
	require.Contains(t, document.Errors[0].Message, "1000001 is not a whole number")

	t.Setenv(command.ConfigVariable, "off")
	require.NoError(t, os.WriteFile(file, []byte("exempt: {hosts: [gpu-01]}\n"), 0o600))
	r = genvtest.Run(t, "policy", "check", "--strict", file)
	require.Equal(t, genvtest.Result{Out: file + ": OK\n", Err: "Not checked: hosts: no inventory was found; name one with -H hosts.yaml\n"}, r, "what is not known isn't wrong")
}

// Several controllers count GPU hours on a server.
func TestPolicyCheckOfHours(t *testing.T) {
	dir := genvtest.Configure(t, command.PolicyFile, "caps:\n  - {name: m, gpu-hours: 3, every: month}\n", command.ConfigFile, "enforce:\n  leader: etcd://a/genv/lab\n")
	r := genvtest.Run(t, "policy", "check").Exits(t, command.ExitFailed)
	require.Contains(t, r.Err, dir+"/policy.yaml:2:6: gpu-hours: with --leader all controllers count them in one PostgreSQL database")
	genvtest.Run(t, "policy", "check", "--usage-db", "postgres://db.lab/genv").OK(t)
}

// Caps are checked with the groups of the inventory and the accounts of this machine.
func TestPolicyCheckOfCaps(t *testing.T) {
	const text = "caps:\n  - {gpus: 3, of: {hosts: [\"@GROUP\"]}}\n  - {gpus: 4, of: {hosts: [\"@GROUP\"]}}\n  - {gpus: 2, users: [\"%no-such-group\", \"%root\"]}\n"
	dir := genvtest.Configure(t, command.HostsFile, "hosts: [gpu-01, gpu-02]\ngroups: {big: [gpu-01]}\n", command.PolicyFile, strings.ReplaceAll(text, "GROUP", "big"))
	file := dir + "/policy.yaml"
	r := genvtest.Run(t, "policy", "check")
	require.Equal(t, genvtest.Result{Out: file + ": OK\n", Err: file + ":2:6: advice: it acts without a warning: with warn: 10m under `defaults:`, people are told before\n" +
		file + ":2:6: advice: people outside of environments don't count: write non-env-processes: count under `defaults:`\n" +
		file + ":3:6: warning: the cap takes nothing: the one at " + file + ":2:6 allows no more, for the same people and GPUs\n" +
		file + ":4:23: warning: this machine knows no Unix group \"no-such-group\"; correct the name, or write \"@no-such-group\" for a group under `groups:`\n"}, r)
	require.Contains(t, genvtest.Run(t, "policy", "check", "--strict").Err, "2 warnings, which --strict makes an error")
	require.Contains(t, genvtest.Run(t, "policy", "explain", "--host", "gpu-01", "--user", "root").Out, "3 GPUs each on @big together, for everybody")
	require.NotContains(t, genvtest.Run(t, "policy", "explain", "--host", "gpu-02", "--user", "root").Out, "@big")

	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(text, "GROUP", "bog")), 0o600))
	for _, args := range [][]string{{"policy", "check"}, {"policy", "explain"}, {"remote", "enforce", "--dry-run", "--policy", file}} {
		r = genvtest.Run(t, args...).Exits(t, command.ExitFailed)
		require.Contains(t, r.Err, file+":2:28: @bog: no such host group in the inventory; did you mean \"big\"?", args)
		require.Contains(t, r.Err, file+":3:28: @bog", args)
	}
	strictly := func(policy string) genvtest.Result {
		require.NoError(t, os.WriteFile(file, []byte(policy), 0o600))
		return genvtest.Run(t, "policy", "check", "--strict")
	}
	require.Contains(t, strictly("caps: [{gpus: 1}]\n").OK(t).Err, "don't count", "a hint is not refused")
	const mail = "mail: {smtp: localhost:25, tls: none, from: a@x.example, template: '{{.User}}@x.example'}\n"
	require.Contains(t, strictly(mail+"defaults: {warn: {for: 1m}}\n").Err, ":2:19: advice: the warning may be over before its mail arrives")
	strictly("defaults: {warn: 10m, idle: {after: 2m, end: true}}\n").Exits(t, command.ExitFailed, ":1:30: warning: `end` ends nothing: ")
	require.NotContains(t, strictly("defaults: {warn: 10m, idle: {after: 2m, end: true, below-power: 20%}}\n").Err, "ends nothing")
}

// What the controllers of this machine have seen says which models there are, and where a cap leaves nothing.
func TestPolicyCheckKnowsGPUs(t *testing.T) {
	state := t.TempDir()
	store := proctest.Try(statedir.Open(state)).OK(t)
	memory := controller.FleetMemory{Rules: enforce.Memory{Hosts: map[snapshot.Hostname]enforce.KnownHost{"gpu-01": {GPUs: map[string]int{"A100": 2}}}}}
	require.NoError(t, store.Save(t.Context(), proctest.Try(memory.Encode(time.Now())).OK(t)))
	require.NoError(t, store.Close())
	dir := genvtest.Configure(t, command.HostsFile, "hosts: [gpu-01, gpu-02]\n", command.ConfigFile, "enforce: {state-dir: "+state+"}\n", command.PolicyFile,
		"defaults: {warn: 1h, non-env-processes: count}\ncaps: [{gpus: -2, per: host}, {gpus: 1, of: {model: V100*}}, {gpus: 1, of: {model: a100, labels: {use: train}}}]\n")
	file := dir + "/policy.yaml:2:"
	r := genvtest.Run(t, "policy", "check")
	require.Equal(t, file+"9: warning: on gpu-01 nothing may be taken: it has 2 GPUs\n"+
		file+`53: warning: no GPU that the controller has seen is a "V100*"; the models are A100`+"\n"+
		file+`99: warning: no host of the inventory has the label "use": its hosts have no labels; add `+"`labels:` there\n", r.Err)
	require.Contains(t, genvtest.Run(t, "policy", "check", "--strict").Err, "3 warnings, which --strict makes an error")

	for text, says := range map[string]string{
		"caps: [{gpus: 50}]":            "2:9: advice: 50 GPUs are more than the 2 that there are: write 50% for a share of them\n",
		"caps: [{gpus: 30, per: host}]": "2:9: advice: 30 GPUs are more than the 2 that a host has: write 30% for a share of them\n",

		"caps: [{gpus: 9}, {gpus: 50%, per: host}, {gpus: {root: 50}}]": "",
	} {
		hosts := filepath.Join(dir, command.HostsFile)
		require.NoError(t, os.WriteFile(hosts, []byte("hosts: [gpu-01, gpu-03]\n"), 0o600))
		require.NoError(t, os.WriteFile(dir+"/policy.yaml", []byte("defaults: {warn: 1h, non-env-processes: count}\n"+text+"\n"), 0o600))
		require.NotContains(t, genvtest.Run(t, "policy", "check").Err, "for a share", "the GPUs of gpu-03 are unknown")
		require.NoError(t, os.WriteFile(hosts, []byte("hosts: [gpu-01]\n"), 0o600))
		r := genvtest.Run(t, "policy", "check", "--strict").OK(t)
		if says != "" {
			says = dir + "/policy.yaml:" + says
		}
		require.Equal(t, says, r.Err, text)
	}
	require.NoError(t, os.Rename(dir+"/policy.yaml", dir+"/other.yaml"))
	require.NoError(t, os.WriteFile(dir+"/config.yaml", []byte("enforce: {policy: "+dir+"/other.yaml}\n"), 0o600))
	require.Contains(t, genvtest.Run(t, "policy", "check").OK(t).Out, "/other.yaml: OK\n")
}

func TestExplainSaysUnixGroups(t *testing.T) {
	genvtest.Configure(t, command.PolicyFile, "caps: [{users: ['%root', '!%tty'], gpus: 2}, {gpus: {'%no such group': 3}}]\n")
	r := genvtest.Run(t, "policy", "explain", "--user", "root", "--format", "csv").OK(t)
	for _, line := range []string{"%root,member,", "%tty,not a member,", "%no such group,unknown,"} {
		require.Contains(t, r.Out, "group "+line)
	}
	require.NotContains(t, genvtest.Run(t, "policy", "explain", "--format", "csv").Out, "group %")
}

func TestExplainKnowsLabels(t *testing.T) {
	const text = "overrides:\n  - {labels: {gpu: h100}, set: {grace: 33s}}\n"
	dir := genvtest.Configure(t, command.HostsFile, fourHosts, command.PolicyFile, text)
	for _, test := range []struct{ line, grace string }{
		{"--host gpu-04", "33s"},
		{"--host GPU-04.", "33s"},
		{"--host gpu-01", "10s"},
		{"--host gpu-04 -H " + dir + "/hosts.yaml", "33s"},
		{"--host gpu-04 -H gpu-04,label:gpu=h*", "33s"},
		{"", "10s"},
	} {
		r := genvtest.Run(t, append([]string{"policy", "explain", "--format", "csv"}, strings.Fields(test.line)...)...).OK(t)
		require.Empty(t, r.Err)
		require.Contains(t, r.Out, "grace,"+test.grace+",", test.line)
	}
	r := genvtest.Run(t, "policy", "explain", "--host", "gpu-05", "--format", "csv")
	require.Equal(t, "warning: host \"gpu-05\" is not in the inventory, so it has no labels; did you mean \"gpu-01\"?\n", r.Err)
	require.Contains(t, r.Out, "grace,10s,")
	r = genvtest.Run(t, "policy", "explain", "--host", "gpu-04", "--format", "json")
	require.Contains(t, r.Out, `"labels":{"gpu":"h100"}`)
}
