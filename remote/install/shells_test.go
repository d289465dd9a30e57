package install_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/install"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// localShell runs command lines with a login shell on this machine.
type localShell struct {
	t     *testing.T
	shell string
	first string // a folder of programs that come first
}

func (s localShell) Run(ctx context.Context, h remote.Host, command remote.Command) (remote.Output, error) {
	cmd := exec.CommandContext(ctx, s.shell, "-c", command.ShellLine())
	cmd.Env = []string{"PATH=" + s.first + ":/usr/bin:/bin"}
	stdin, err := cmd.StdinPipe()
	require.NoError(s.t, err)
	go func() {
		defer stdin.Close()
		_, _ = stdin.Write(command.Stdin) // the command may end before
	}()
	out, err := cmd.Output()
	if err != nil {
		return remote.Output{Stdout: out}, remote.Errorf(remote.CommandFailed, "%s: %w", h.Name, err)
	}
	return remote.Output{Stdout: out}, nil
}

// TestLoginShells: the scripts run whatever the login shell is. They only look, at this machine.
func TestLoginShells(t *testing.T) {
	for _, shell := range []string{"sh", "bash", "zsh", "tcsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			if _, err := exec.LookPath(shell); err != nil {
				t.Skip("there is no " + shell + " on this machine")
			}
			i := &install.Installer{Runner: localShell{t, shell, ""}, Options: install.Options{Path: "/nowhere/bin/genv", Check: true}}
			_, err := i.Install(t.Context(), remote.Host{Name: "here", NoSudo: true})
			require.Equal(t, remote.InstallRefused, remote.ClassOf(err), "%v", err)
			require.Regexp(t, "and this genv is for|is not root", err.Error(), "which comes after all that was asked")
		})
	}
}

// TestWhomSSHDRefuses: by what sshd says of its configuration, at this machine.
func TestWhomSSHDRefuses(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this test has to run as root")
	}
	data := elf(map[string]byte{"amd64": 62, "arm64": 183}[runtime.GOARCH], words)
	programs := map[string]*install.Binary{runtime.GOARCH: program(data, runtime.GOARCH)}
	for said, want := range map[string]string{
		"port 22":                                           "",
		"allowusers ann":                                    "add it to AllowUsers in",
		"allowusers ann\nallowusers roo*":                   "",
		"allowgroups users\nallowusers root@10.*":           "add it to AllowGroups in",
		"denyusers ann\ndenyusers root":                     "remove it from DenyUsers in",
		"denygroups root\nallowusers ann":                   "add it to AllowUsers and remove it from DenyGroups in",
		"denyusers root@192.0.2.1\ndenygroups users":        "", // it may be another machine
		"denyusers ann\nallowusers root\nallowgroups root":  "",
		"allowusers ann\nallowgroups users\ndenyusers root": "add it to AllowUsers and AllowGroups and remove it from DenyUsers in",
	} {
		dir := t.TempDir()
		require.NoError(t, proctest.WriteProgram(filepath.Join(dir, "sshd"), []byte("#!/bin/sh\nprintf '"+said+"\\n'\n")))
		i := &install.Installer{
			Runner: localShell{t, "sh", dir}, Programs: programs,
			Options: install.Options{Path: "/nowhere/bin/genv", Account: "root", Key: "ssh-ed25519 AAAA", Check: true},
		}
		outcome := done(t, i.Install, remote.Host{Name: "here", NoSudo: true})
		notes := strings.Join(outcome.Notes, "\n")
		require.Equal(t, want != "", strings.Contains(notes, "sshd refuses logins of root: "+want), "%s: %s", said, notes)
		require.Equal(t, want == "", strings.Contains(notes, "may log in as root"), said)
	}
}
