package proc_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

const (
	container = "4f0b1e7c2d3a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9012345678"
	inner     = "aaaa1e7c2d3a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9012345678"
)

func TestParse(t *testing.T) {
	pod := "kubepods-besteffort-pod1b2c3d4e_0000_1111_2222_333344445555.slice"
	for name, row := range map[string]struct{ cgroup, want string }{
		"docker, v1":                  {"12:devices:/docker/" + container + "\n11:memory:/docker/" + container + "\n0::/system.slice/containerd.service\n", container},
		"docker, v2 and systemd":      {"0::/system.slice/docker-" + container + ".scope\n", container},
		"docker, v1 and systemd":      {"1:name=systemd:/system.slice/docker-" + container + ".scope\n", container},
		"docker, hybrid":              {"2:cpu,cpuacct:/docker/" + container + "\n1:name=systemd:/docker/" + container + "\n0::/docker/" + container + "\n", container},
		"docker, rootless":            {"0::/user.slice/user-1001.slice/user@1001.service/user.slice/docker-" + container + ".scope\n", container},
		"docker, a parent of its own": {"0::/lab.slice/docker-" + container + ".scope\n", container},
		"docker, cgroupfs and parent": {"0::/lab/" + container + "\n", container},
		"docker in docker":            {"0::/docker/" + container + "/docker/" + inner + "\n", container},
		"systemd in docker":           {"0::/docker/" + container + "/system.slice/cron.service\n", container},
		"podman":                      {"0::/machine.slice/libpod-" + container + ".scope/container\n", container},
		"podman, rootless":            {"0::/user.slice/user-1001.slice/user@1001.service/user.slice/libpod-" + container + ".scope\n", container},
		"podman, cgroupfs":            {"0::/libpod_parent/libpod-" + container + "\n", container},
		"podman, in a service":        {"0::/system.slice/web.service/libpod-payload-" + container + "\n", container},
		"podman, in a pod":            {"0::/machine.slice/machine-libpod_pod_" + inner + ".slice/libpod-" + container + ".scope/container\n", container},
		"podman, v1":                  {"9:memory:/machine.slice/libpod-" + container + ".scope\n1:name=systemd:/machine.slice/libpod-" + container + ".scope/system.slice\n", container},
		"docker, in kubernetes":       {"0::/kubepods.slice/kubepods-burstable.slice/" + pod + "/docker-" + container + ".scope\n", container},
		"cri-o, cgroupfs":             {"4:memory:/kubepods/burstable/pod1b2c3d4e-0000-1111-2222-333344445555/crio-" + container + "\n", container},
		"cri-o, with crun":            {"0::/kubepods.slice/" + pod + "/crio-" + container + ".scope/container\n", container},
		"kubernetes, guaranteed":      {"0::/kubepods/pod1b2c3d4e-0000-1111-2222-333344445555/" + container + "\n", container},
		"nerdctl, cgroupfs":           {"9:memory:/default/" + container + "\n", container},
		"cri-containerd":              {"0::/kubepods.slice/kubepods-besteffort.slice/" + pod + "/cri-containerd-" + container + ".scope\n", container},
		"cri-containerd, odd":         {"0::/system.slice/containerd.service/" + pod + ":cri-containerd:" + container + "\n", container},
		"kubernetes, cgroupfs":        {"4:memory:/kubepods/burstable/pod1b2c3d4e-0000-1111-2222-333344445555/" + container + "\n", container},
		"cri-o":                       {"0::/kubepods.slice/" + pod + "/crio-" + container + ".scope\n", container},
		"nerdctl":                     {"0::/system.slice/nerdctl-" + container + ".scope\n", container},
		"lxc":                         {"0::/lxc/web\n", "web"},
		"lxc, payload":                {"0::/lxc.payload.web/init.scope\n", "web"},
		"lxc, payload as a folder":    {"0::/lxc.payload/web/system.slice\n", "web"},
		"lxc, of a user":              {"0::/user.slice/user-1001.slice/user@1001.service/app.slice/lxc.payload.web/init.scope\n", "web"},
		"lxc, v1":                     {"12:pids:/lxc.payload.web\n1:name=systemd:/lxc.payload.web/init.scope\n", "web"},
		"lxc, a name used before":     {"0::/lxc.payload.web-1\n", "web-1"},
		"nspawn":                      {"0::/machine.slice/machine-web.scope/payload\n", "web"},
		"nspawn, escaped":             {`0::/machine.slice/machine-web\x2d1.scope/payload` + "\n", "web-1"},
		"nspawn, a service":           {`0::/machine.slice/systemd-nspawn@my\x2dweb.service/payload/init.scope` + "\n", "my-web"},
		"nspawn, a service, hybrid":   {`9:memory:/machine.slice/systemd-nspawn@web.service` + "\n" + `1:name=systemd:/machine.slice/systemd-nspawn@web.service/payload/init.scope` + "\n0::/machine.slice/systemd-nspawn@web.service/payload/init.scope\n", "web"},
		"nspawn, of NixOS":            {"0::/machine.slice/container@web.service/payload/system.slice\n", "web"},
		"a name to obey":              {"0::/lxc/a\x1b[2J\xff\n", "a?[2J?"},
		"an escape to obey":           {`0::/machine.slice/machine-a\x1b.scope` + "\n", "a?"},
		"a long name":                 {"0::/lxc/" + strings.Repeat("x", 5000) + "\n", strings.Repeat("x", 128)},
		"from another cgroup":         {"0::/../docker-" + container + ".scope\n", container},
		"the last line is open":       {"0::/docker/" + container, container},

		"apptainer, v2":   {"0::/user.slice/user-1001.slice/user@1001.service/user.slice/apptainer-4242.scope\n", "apptainer-4242"},
		"apptainer, v1":   {"7:memory:/apptainer/4242\n", "apptainer-4242"},
		"apptainer, root": {"0::/system.slice/apptainer-4242.scope\n", "apptainer-4242"},
		"apptainer, oci":  {"0::/system.slice/apptainer-oci-web-1.scope\n", "apptainer-oci-web-1"},
		"the same on v1":  {"7:memory:/apptainer-oci/web\n", "apptainer-oci-web"},
		"singularity, v2": {"0::/user.slice/user-1001.slice/user@1001.service/user.slice/singularity-parent-4242.scope\n", "apptainer-4242"},
		"singularity, v1": {"7:memory:/singularity/4242\n1:name=systemd:/user.slice\n", "apptainer-4242"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, row.want, proc.ParsePlace([]byte(row.cgroup)).ID)
		})
	}
}

// TestNoContainer are cgroups of what is no container, or outside of it.
func TestNoContainer(t *testing.T) {
	for name, group := range map[string]string{
		"nothing":                  "",
		"apptainer's folder":       "7:memory:/apptainer\n",
		"podman's monitor, split":  "0::/system.slice/web.service/runtime\n",
		"podman's monitors":        "0::/libpod_parent/conmon\n",
		"podman's pod":             "0::/machine.slice/machine-libpod_pod_" + container + ".slice\n",
		"lxc's monitor's end":      "0::/lxc.pivot\n",
		"lxc's monitor as before":  "0::/lxc.monitor/web\n",
		"nspawn's own scope":       "0::/machine.slice/machine-web.scope/supervisor\n",
		"a service of machines":    "0::/machine.slice/systemd-nspawn@web.service\n",
		"another scope there":      "0::/machine.slice/web.scope\n",
		"apptainer without a name": "0::/user.slice/apptainer-oci-.scope\n",
		"another scope":            "0::/user.slice/web.scope\n",
		"not a PID of apptainer":   "0::/user.slice/apptainer-web.scope\n",
		"the root":                 "0::/\n",
		"garbage":                  "docker/" + container + "\n:\n\x00\n",
		"a login":                  "0::/user.slice/user-1001.slice/session-5.scope\n",
		"a user's service":         "0::/user.slice/user-1001.slice/user@1001.service/app.slice/jupyter.service\n",
		"tmux":                     "0::/user.slice/user-1001.slice/user@1001.service/tmux-spawn-0a1b2c3d-0000-1111-2222-333344445555.scope\n",
		"an application":           "0::/user.slice/user-1001.slice/user@1001.service/app.slice/app-gnome-code-4242.scope\n",
		"a system service":         "0::/system.slice/ssh.service\n",
		"slurm, v1":                "9:cpuset:/slurm/uid_1001/job_4711/step_0/task_0\n4:memory:/slurm/uid_1001/job_4711/step_batch\n1:name=systemd:/system.slice/slurmd.service\n",
		"slurm, v2":                "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n",
		"pbs":                      "8:memory:/pbspro.slice/pbspro-4711.gpu01.slice\n",
		"htcondor":                 "0::/system.slice/condor.service/condor_var_lib_condor_execute_slot1@gpu01\n",
		"apptainer":                "0::/user.slice/user-1001.slice/session-5.scope\n",
		"the daemon of docker":     "0::/system.slice/docker.service\n",
		"docker's folder":          "0::/docker\n",
		"a shim":                   "0::/system.slice/containerd.service\n",
		"podman's monitor":         "0::/machine.slice/libpod-conmon-" + container + ".scope\n",
		"cri-o's monitor":          "0::/system.slice/crio-conmon-" + container + ".scope\n",
		"lxc's monitor":            "0::/lxc.monitor.web\n",
		"lxc's service":            "0::/system.slice/lxc.service\n",
		"nspawn's supervisor":      "0::/machine.slice/systemd-nspawn@web.service/supervisor\n",
		"a machine of qemu":        `0::/machine.slice/machine-qemu\x2d1\x2dvm.scope/libvirt/emulator` + "\n",
		"a machine's name outside": "0::/user.slice/machine-web.scope\n",
		"63 digits":                "0::/docker/" + container[1:] + "\n",
		"32 digits":                "4:memory:/process_api/" + container[:32] + "\n",
		"capitals":                 "0::/docker/" + strings.ToUpper(container) + "\n",
		"a service with an id":     "0::/system.slice/x-" + container + ".service\n",
		"a scope of another tool":  "0::/system.slice/tool-" + container + ".scope\n",
	} {
		require.Zero(t, proc.ParsePlace([]byte(group)), name)
	}
}

// TestRecorded are the cgroups of real containers of Debian 12 on a host with cgroup v1 and v2
// and without systemd; the table above is constructed.
func TestRecorded(t *testing.T) {
	const of = "278694f4fbcf41efaff26d5c0e03e924d8356f5431a311591c66dd230c41d23e"
	all := func(group string) string {
		var lines strings.Builder
		for i, name := range []string{"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "name=systemd"} {
			fmt.Fprintf(&lines, "%d:%s:%s\n", i+1, name, group)
		}
		return lines.String() + "0::" + group + "\n"
	}
	for name, row := range map[string]struct {
		cgroup string
		want   proc.Cgroup
	}{
		"LXC 5.0.2":                          {all("/lxc.payload.web"), proc.Cgroup{ID: "web", Runtime: proc.LXC, Path: "/lxc.payload.web"}},
		"its monitor":                        {all("/lxc.monitor.web"), proc.Cgroup{}},
		"Podman 4.3.1 and runc":              {all("/libpod_parent/libpod-" + of), proc.Cgroup{ID: of, Runtime: proc.Podman, Path: "/libpod_parent/libpod-" + of}},
		"its monitor, conmon":                {"9:name=systemd:/\n8:pids:/libpod_parent/conmon\n0::/\n", proc.Cgroup{}},
		"systemd-nspawn 252 without systemd": {"9:name=systemd:/payload\n8:pids:/\n0::/payload\n", proc.Cgroup{}},
		"its supervisor":                     {"9:name=systemd:/supervisor\n8:pids:/\n0::/supervisor\n", proc.Cgroup{}},
	} {
		require.Equal(t, row.want, proc.ParsePlace([]byte(row.cgroup)), name)
	}
}

func TestNested(t *testing.T) {
	for group, want := range map[string]bool{
		"/docker/" + container: false, "/docker/" + container + "/system.slice/cron.service": false, "/lxc/web/lxc.monitor.web": false,
		"/docker/" + container + "/docker/" + inner: true, "/docker/" + container + "/" + inner: true,
		"/a.slice/docker-" + container + ".scope/b/docker-" + inner + ".scope": true, "/lxc/web/docker/" + inner: true,
	} {
		require.Equal(t, want, proc.ParsePlace([]byte("0::"+group+"\n")).Nested, group)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("0::/system.slice/docker-" + container + ".scope\n"))
	f.Add([]byte(`0::/machine.slice/machine-web\x2d1.scope/payload`))
	f.Add([]byte("0::/user.slice/apptainer-oci-a.scope\n"))
	f.Add([]byte("0::/machine.slice/container@a\\x2d.service/payload\n"))
	f.Add([]byte("4:memory:/lxc/a/b\n0::/lxc.payload.b\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		place := proc.ParsePlace(data)
		require.LessOrEqual(t, len(place.ID), 128)
		require.True(t, utf8.ValidString(place.ID))
		require.NoError(t, snapshot.CheckText("container", place.ID))
		require.Equal(t, place.ID == "", place == proc.Cgroup{})
		require.Contains(t, string(data), place.Path)
	})
}

func TestPlace(t *testing.T) {
	const user = "/user.slice/user-1001.slice/user@1001.service"
	for path, want := range map[string]proc.Cgroup{
		"/docker/" + container:                                      {Runtime: proc.Docker, Path: "/docker/" + container},
		"/docker/" + container + "/system.slice/x":                  {Runtime: proc.Docker, Path: "/docker/" + container},
		"/system.slice/docker-" + container + ".scope":              {Runtime: proc.Docker, Path: "/system.slice/docker-" + container + ".scope"},
		"/machine.slice/libpod-" + container + ".scope/container":   {Runtime: proc.Podman, Path: "/machine.slice/libpod-" + container + ".scope"},
		"/lab/" + container:                                         {Path: "/lab/" + container},
		"/kubepods/burstable/pod1/" + container:                     {Path: "/kubepods/burstable/pod1/" + container},
		"/system.slice/x.slice:cri-containerd:" + container:         {Runtime: proc.Containerd, Path: "/system.slice/x.slice:cri-containerd:" + container},
		user + "/user.slice/libpod-" + container + ".scope/payload": {Runtime: proc.Podman, Path: user + "/user.slice/libpod-" + container + ".scope", Delegated: true},
		"/user.slice/user-1001.slice/docker/" + container:           {Runtime: proc.Docker, Path: "/user.slice/user-1001.slice/docker/" + container, Delegated: true},
		"/user@1001.service/" + container:                           {Path: "/user@1001.service/" + container, Delegated: true},
		"/user.slice/user-web.slice/" + container:                   {Path: "/user.slice/user-web.slice/" + container},
	} {
		want.ID = container
		require.Equal(t, want, proc.ParsePlace([]byte("0::"+path+"\n")), path)
	}
}

func TestAncestors(t *testing.T) {
	fs := mount(t)
	for _, row := range []struct{ pid, parent int }{{10, 1}, {11, 10}, {12, 11}, {20, 0}, {30, 29}, {40, 41}, {41, 40}} {
		add(t, fs, snapshot.PID(row.pid), map[string]string{"stat": statLine(row.pid, "sh", "S", row.parent, 0, 1, 5)})
	}
	for _, row := range []struct {
		what string
		pid  snapshot.PID
		want []proc.ID
	}{
		{"up to PID 1", 12, []proc.ID{{PID: 11, Start: 5}, {PID: 10, Start: 5}, {PID: 1, Start: 2}}},
		{"PID 1 has none", 1, nil},
		{"the first of a namespace", 20, nil},
	} {
		got := proctest.Try(fs.Ancestors(row.pid)).OK(t, row.what)
		require.Equal(t, row.want, got, row.what)
	}
	finder := fs.NewAncestorFinder()
	for pid, want := range map[snapshot.PID][]proc.ID{
		12: {{PID: 11, Start: 5}, {PID: 10, Start: 5}, {PID: 1, Start: 2}},
		11: {{PID: 10, Start: 5}, {PID: 1, Start: 2}},
		1:  nil,
		20: nil,
	} {
		require.Equal(t, want, proctest.Try(finder.Ancestors(proctest.Try(fs.Stat(pid)).OK(t))).OK(t))
	}
	require.ErrorIs(t, proctest.Try(finder.Ancestors(proc.Stat{PID: 30, PPID: 29, Start: 5})).Err, proc.ErrGone)
	many, err := finder.Ancestors(proc.Stat{PID: 40, PPID: 41, Start: 5}) // any depth
	require.NoError(t, err)
	require.Len(t, many, 256)
	_, err = fs.Ancestors(30) // its parent has ended, and it never gets another
	require.ErrorIs(t, err, proc.ErrGone)
	_, err = fs.Ancestors(40) // a ring, which no kernel makes
	require.ErrorIs(t, err, proc.ErrUnreadable)
}

// A parent that ended since the process was looked at: its new one is found.
func TestAncestorsOfAnOrphan(t *testing.T) {
	fs := mount(t)
	add(t, fs, 10, map[string]string{"stat": statLine(10, "sh", "S", 1, 0, 1, 5)})
	before := proctest.Try(proc.ParseStat([]byte(statLine(10, "sh", "S", 9, 0, 1, 5)))).OK(t)
	got := proctest.Try(fs.NewAncestorFinder().Ancestors(before)).OK(t)
	require.Equal(t, []proc.ID{{PID: 1, Start: 2}}, got)

	before.Start = 4 // now its PID is another's
	require.ErrorIs(t, proctest.Try(fs.NewAncestorFinder().Ancestors(before)).Err, proc.ErrGone)
}

// Without a name in the cgroup the PID namespace still shows it.
func TestContainerByPIDNamespace(t *testing.T) {
	for name, row := range map[string]struct{ cgroup, pids, want string }{
		"the host's":           {"0::/\n", "NSpid:\t10\n", ""},
		"another":              {"0::/user.slice\n", "NSpid:\t10\t1\n", snapshot.UnnamedContainer},
		"one in another":       {"0::/user.slice\n", "NSpid:\t10\t5\t1\n", snapshot.UnnamedContainer},
		"another, with a name": {"0::/lxc/web\n", "NSpid:\t10\t1\n", "web"},
		"a name, the host's":   {"0::/lxc/web\n", "NSpid:\t10\n", "web"},
		"no cgroup":            {"", "NSpid:\t10\t1\n", snapshot.UnnamedContainer},
		"an old kernel":        {"0::/\n", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			fs := mount(t)
			add(t, fs, 10, map[string]string{"cgroup": row.cgroup, "status": statusText("NSpid: 7 8", 1001) + row.pids})
			require.Equal(t, row.want, containerOf(t, fs, 10))
		})
	}
}

func containerOf(t *testing.T, fs proc.FS, pid snapshot.PID) string {
	t.Helper()
	p := proctest.Try(fs.Open(pid)).OK(t)
	defer func() { require.NoError(t, p.Close()) }()
	return p.Container().ID
}

// A real process in a PID namespace of its own.
func TestContainerOfARealProcess(t *testing.T) {
	own := containerOf(t, proc.FS{}, snapshot.PID(os.Getpid())) // the tests may run in one themselves
	sleep := func(flags uintptr) string {
		cmd := exec.Command("sleep", "60")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL}
		proctest.Start(t, cmd)
		return containerOf(t, proc.FS{}, snapshot.PID(cmd.Process.Pid))
	}
	require.Equal(t, own, sleep(0))
	proctest.NeedRoot(t) // for a PID namespace
	want := snapshot.UnnamedContainer
	if own != "" {
		want = own
	}
	require.Equal(t, want, sleep(syscall.CLONE_NEWPID))
}
