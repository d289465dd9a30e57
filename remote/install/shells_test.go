package install_test

import (
	"context"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/install"
	"github.com/seed-3119e985/genv/remote/install/onhost"
)

// localShell runs command lines with a login shell on this machine.
type localShell struct {
	t     *testing.T
	shell string
}

func (s localShell) Run(ctx context.Context, h remote.Host, command remote.Command) (remote.Output, error) {
	cmd := exec.CommandContext(ctx, s.shell, "-c", command.ShellLine())
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
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
			i := &install.Installer{Runner: localShell{t, shell}, Options: onhost.Options{Path: "/nowhere/bin/genv", Check: true}}
			_, err := i.Install(t.Context(), remote.Host{Name: "here", NoSudo: true})
			require.Equal(t, remote.InstallRefused, remote.ClassOf(err), "%v", err)
			require.Regexp(t, "and this genv is for|is not root", err.Error(), "which comes after all that was asked")
		})
	}
}
