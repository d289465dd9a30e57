package onhost_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/install/onhost"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// machine is a host in a folder, whose programs say what is in says, or fail without it.
type machine struct {
	t    *testing.T
	root string
	says map[string]string
	ran  []string
}

func newMachine(t *testing.T) *machine {
	m := &machine{t: t, root: t.TempDir(), says: map[string]string{
		"genv": "v2\n", ".genv-install-": "v2\n", "genv envs": "", "visudo": "", "systemctl": "LoadState=loaded\nNeedDaemonReload=no\n",
	}}
	for path, content := range map[string]string{
		"etc/passwd": "root:x:0:0::/root:/bin/sh\nadmin:x:7:7::/home/admin:/bin/sh\n", "etc/bash.bashrc": "# the end",
		"etc/tmpfiles.d/x": "", "etc/sudoers.d/x": "", "run/systemd/system/x": "", "proc/driver/nvidia/version": "", "usr/bin/x": "",
		"usr/sbin/visudo": "", "program": "genv v2",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(m.at(path)), 0o755))
		require.NoError(t, proctest.WriteProgram(m.at(path), []byte(content)))
	}
	return m
}

func (m *machine) at(path string) string { return filepath.Join(m.root, path) }

func (m *machine) run(cmd *exec.Cmd) error {
	name := strings.Replace(filepath.Base(cmd.Path), "program", "genv", 1)
	line := strings.Join(append([]string{name}, cmd.Args[1:]...), " ")
	m.ran = append(m.ran, line)
	if strings.HasPrefix(line, "genv man") {
		require.NoError(m.t, os.WriteFile(cmd.Args[2]+"/genv.1", nil, 0o644))
	}
	longest, found := "", false
	for begin := range m.says {
		if strings.HasPrefix(line, begin) && len(begin) > len(longest) {
			longest, found = begin, true
		}
	}
	if !found {
		return errors.New("it fails")
	}
	return proctest.Try(io.WriteString(cmd.Stdout, m.says[longest])).Err
}

// do carries out a request.
func (m *machine) do(change func(*onhost.Request)) (a onhost.Answer) {
	m.t.Helper()
	var out bytes.Buffer
	h := onhost.Host{Program: m.at("program"), Root: m.root, Out: &out, Run: m.run, Getenv: func(string) string { return "" }}
	r := &onhost.Request{Options: onhost.Options{Path: place, Account: "admin", Extras: true, ShellSetup: true}, Token: "T"}
	r.Sum = strings.Fields(proctest.Output(m.t, exec.Command("sha256sum", h.Program)))[0]
	change(r)
	require.NoError(m.t, h.Serve(m.t.Context(), bytes.NewReader(proctest.Try(json.Marshal(r)).OK(m.t)), r.Check))
	_, answer, _ := strings.Cut(out.String(), "T answer ")
	require.NoError(m.t, json.Unmarshal([]byte(answer), &a), out.String())
	return a
}

func (m *machine) files() (files []string) {
	require.NoError(m.t, filepath.WalkDir(m.root, func(path string, d os.DirEntry, err error) error {
		if !d.IsDir() {
			files = append(files, strings.TrimPrefix(path, m.root+"/"))
		}
		return err
	}))
	return files
}

// TestLife: a new host gets all, and keeps nothing of it in the end.
func TestLife(t *testing.T) {
	m := newMachine(t)
	before := m.files()
	require.Equal(t, onhost.Installed, m.do(func(r *onhost.Request) { r.Check = true }).Outcome.Result)
	require.Equal(t, before, m.files(), "a plan changes nothing")
	a := m.do(func(*onhost.Request) {})
	require.Nil(t, a.Failure)
	require.Equal(t, "v2", a.Outcome.Now.Version)
	require.Equal(t, "7", a.AccountUID)
	require.Contains(t, m.ran, "systemctl enable genv-host.socket genv-host.service")
	require.Contains(t, string(proctest.ReadFile(t, m.at("etc/bash.bashrc"))), "# the end\ncase $- in")
	require.Subset(t, m.files(), []string{
		"usr/local/lib/genv/shims/docker", "usr/local/share/zsh/site-functions/_genv", "etc/tmpfiles.d/genv-state.conf", "usr/bin/genv",
		"etc/systemd/system/genv-enforce.service", "etc/systemd/system/genv-host.socket", "etc/sudoers.d/zz-genv",
	})
	require.Equal(t, onhost.Unchanged, m.do(func(*onhost.Request) {}).Outcome.Result)
	remove := func(r *onhost.Request) { r.Uninstall, r.Check = true, true }
	require.Contains(t, m.do(remove).Outcome.Notes[0], "--state root", "all users write it then")

	m.do(func(r *onhost.Request) { r.State = onhost.StateShared })
	require.Contains(t, m.ran, "genv host handover")
	require.NotContains(t, m.files(), "etc/systemd/system/genv-host.service")
	require.Empty(t, m.do(remove).Outcome.Notes)

	purge := func(r *onhost.Request) { r.Uninstall, r.Purge = true, true }
	m.says["genv envs"] = "5,alice\n"
	require.Contains(t, m.do(purge).Failure.Error, "environments are active: 1")
	m.says["genv envs"] = ""
	require.Equal(t, onhost.Uninstalled, m.do(purge).Outcome.Result)
	require.ElementsMatch(t, append(before, "run/genv-install.lock"), m.files())
	require.Equal(t, "# the end\n", string(proctest.ReadFile(t, m.at("etc/bash.bashrc"))))
}

// TestUndo: a program that doesn't run in its place, or lines that visudo refuses there, are replaced by the earlier.
func TestUndo(t *testing.T) {
	m := newMachine(t)
	m.do(func(*onhost.Request) {})
	earlier := proctest.ReadFile(t, m.at("etc/sudoers.d/zz-genv"))
	require.NoError(t, proctest.WriteProgram(m.at("program"), []byte("genv v3")))
	for _, fails := range []string{"genv", ".genv-install-", "visudo"} {
		delete(m.says, fails)
		m.ran = nil
		require.NotNil(t, m.do(func(r *onhost.Request) { r.Upgrade, r.Account = true, "root" }).Failure)
		require.Equal(t, "genv v2", string(proctest.ReadFile(t, m.at(place))))
		require.Equal(t, earlier, proctest.ReadFile(t, m.at("etc/sudoers.d/zz-genv")))
		require.NotContains(t, strings.Join(m.files(), " "), ".genv-install")
		require.Equal(t, fails == "genv", slices.Contains(m.ran, "genv version"), "it is in its place")
		m.says["genv"], m.says[".genv-install-"] = "v3\n", "v3\n"
	}
}

// TestSameUnitsStay: systemd would load all units again for one that is written again, and containers lose their GPUs.
func TestSameUnitsStay(t *testing.T) {
	m := newMachine(t)
	m.do(func(*onhost.Request) {})
	unit := m.at("etc/systemd/system/genv-enforce.service")
	before := proctest.Try(os.Stat(unit)).OK(t)
	require.NoError(t, proctest.WriteProgram(m.at("program"), []byte("genv v3")))
	require.Equal(t, onhost.Upgraded, m.do(func(r *onhost.Request) { r.Upgrade = true }).Outcome.Result)
	require.True(t, os.SameFile(before, proctest.Try(os.Stat(unit)).OK(t)))
	require.Contains(t, m.ran, "systemctl try-restart genv-enforce.service", "it runs the new program")

	// After an interrupted installation a service may run the program that was replaced.
	m.says["systemctl show --property=LoadState,NeedDaemonReload,MainPID genv-host.service"] = "LoadState=loaded\nNeedDaemonReload=no\nMainPID=7\n"
	require.NoError(t, os.MkdirAll(m.at("proc/7"), 0o755))
	for target, want := range map[string]string{place: onhost.Unchanged, place + " (deleted)": onhost.Repaired} {
		_ = os.Remove(m.at("proc/7/exe")) // the first time there is none
		require.NoError(t, os.Symlink(target, m.at("proc/7/exe")))
		m.ran = nil
		require.Equal(t, want, m.do(func(*onhost.Request) {}).Outcome.Result)
		require.Equal(t, want == onhost.Repaired, slices.Contains(m.ran, "systemctl try-restart genv-host.service"))
		require.NotContains(t, m.ran, "systemctl daemon-reload")
	}
}

// TestWhatSitesHaveStays: a masked unit is no unit, a link to a folder is no empty one, and a FIFO is not waited for.
func TestWhatSitesHaveStays(t *testing.T) {
	m := newMachine(t)
	m.do(func(*onhost.Request) {})
	units, zsh := m.at("etc/systemd/system"), m.at("usr/local/share/zsh")
	for _, unit := range []string{"genv-host.socket", "genv-host.service", "genv-enforce.service"} {
		require.NoError(t, os.Remove(filepath.Join(units, unit)))
		require.NoError(t, os.Symlink("/dev/null", filepath.Join(units, unit)))
		require.Equal(t, onhost.Unchanged, m.do(func(*onhost.Request) {}).Outcome.Result, unit)
	}
	require.NoError(t, os.Rename(zsh, m.at("elsewhere")))
	require.NoError(t, os.Symlink("../../../elsewhere", zsh))
	require.NoError(t, os.Remove(m.at("etc/sudoers.d/zz-genv")))
	require.NoError(t, syscall.Mkfifo(m.at("etc/sudoers.d/zz-genv"), 0o600))
	before := m.files()
	require.NoError(t, proctest.WriteProgram(m.at("program"), []byte("genv v3")))
	require.Equal(t, onhost.Upgraded, m.do(func(r *onhost.Request) { r.Upgrade = true }).Outcome.Result)
	require.Equal(t, before, m.files())
	for _, unit := range []string{"genv-host.service", "genv-enforce.service"} {
		require.Equal(t, "/dev/null", proctest.Try(os.Readlink(filepath.Join(units, unit))).OK(t))
	}
	m.do(func(r *onhost.Request) { r.Uninstall = true })
	proctest.Try(os.Lstat(zsh)).OK(t)
}

// TestNewHostWithAMaskedUnit: its site doesn't want root's service, and gets genv without it.
func TestNewHostWithAMaskedUnit(t *testing.T) {
	m := newMachine(t)
	unit := m.at("etc/systemd/system/genv-host.service")
	require.NoError(t, os.MkdirAll(filepath.Dir(unit), 0o755))
	require.NoError(t, os.Symlink("/dev/null", unit))
	a := m.do(func(*onhost.Request) {})
	require.Equal(t, onhost.Installed, a.Outcome.Result)
	require.Contains(t, strings.Join(a.Outcome.Notes, "\n"), "every user writes the state: genv-host.service is masked; `--state root`")
	require.NotContains(t, strings.Join(m.ran, "\n"), "systemctl enable")
}

// TestWhomSSHDRefuses: by what sshd says of its configuration.
func TestWhomSSHDRefuses(t *testing.T) {
	for said, want := range map[string]string{
		"port 22":                                            "",
		"allowusers ann":                                     "add it to AllowUsers in",
		"allowusers ann\nallowusers adm*":                    "",
		"allowgroups users\nallowusers admin@10.*":           "add it to AllowGroups in",
		"denyusers ann\ndenyusers admin":                     "remove it from DenyUsers in",
		"denygroups wheel\nallowusers ann":                   "add it to AllowUsers and remove it from DenyGroups in",
		"denyusers admin@192.0.2.1\ndenygroups users":        "", // it may be another machine
		"denyusers ann\nallowusers admin\nallowgroups wheel": "",
		"allowusers ann\nallowgroups users\ndenyusers admin": "add it to AllowUsers and AllowGroups and remove it from DenyUsers in",
	} {
		m := newMachine(t)
		m.says["sshd -T -C user=admin"], m.says["id -Gn"] = said+"\n", "admin wheel\n"
		a := m.do(func(r *onhost.Request) { r.Key, r.Check = "ssh-ed25519 AAAA", true })
		notes := strings.Join(a.Outcome.Notes, "\n")
		require.Equal(t, want != "", strings.Contains(notes, "sshd refuses logins of admin: "+want), "%s: %s", said, notes)
		require.Equal(t, want == "", strings.Contains(notes, "may log in as admin"), said)
	}
}
