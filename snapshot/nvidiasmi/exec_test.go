package nvidiasmi_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// script is a program in a folder of its own.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nvidia-smi")
	require.NoError(t, proctest.WriteProgram(path, []byte("#!/bin/sh\n"+body)))
	return path
}

func TestExec(t *testing.T) {
	run := nvidiasmi.Exec{
		Path: script(t, `printf '%s|' "$@" "$LC_ALL" "$GENV_BYPASS" "$KEPT"; echo oops >&2; exit 9`),
		Env:  []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=de_DE.UTF-8", "KEPT=yes"},
	}
	out, err := run.Run(t.Context(), "-L", "a b")
	require.NoError(t, err)
	require.Equal(t, "-L|a b|C|1|yes|", string(out.Stdout))
	require.Equal(t, "oops\n", string(out.Stderr))
	require.Equal(t, 9, out.ExitCode)
}

func TestExecOfAMissingProgram(t *testing.T) {
	_, err := nvidiasmi.Exec{Path: filepath.Join(t.TempDir(), "nvidia-smi")}.Run(t.Context())
	require.ErrorIs(t, err, nvidiasmi.ErrNotInstalled)
}

func TestExecOfAFileThatIsNotAProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nvidia-smi")
	require.NoError(t, proctest.WriteProgram(path, []byte("\x7fELF nonsense")))
	_, err := nvidiasmi.Exec{Path: path}.Run(t.Context())
	require.ErrorIs(t, err, nvidiasmi.ErrFailed)
}

func TestExecBoundsTheOutput(t *testing.T) {
	for _, stream := range []string{"", " >&2"} {
		_, err := nvidiasmi.Exec{Path: script(t, "exec yes"+stream)}.Run(t.Context())
		require.ErrorIs(t, err, nvidiasmi.ErrGarbled)
	}
}

// A program that ignores what it can, with a child that holds its pipes.
func TestTheEndOfTheContextEndsTheProgramAndItsChildren(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	run := nvidiasmi.Exec{Path: script(t, `trap '' TERM INT HUP; sleep 1000 & echo $! >`+pidFile+`; wait`)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() {
		_, err := run.Run(ctx)
		result <- err
	}()
	var child int
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(pidFile)
		if err == nil {
			child, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err == nil
	}, 10*time.Second, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-result, context.Canceled)
	require.Eventually(t, func() bool { return ended(child) }, 10*time.Second, time.Millisecond)
}

// ended says whether a process has ended, even if no process has waited for it.
func ended(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat") // gone by now is fine
	return !strings.Contains(string(stat), ") S") && !strings.Contains(string(stat), ") R")
}

// What it leaves in the background keeps its pipes, and is not waited for.
func TestExecWithARemainingChild(t *testing.T) {
	out, err := nvidiasmi.Exec{Path: script(t, `echo $$; echo oops >&2; sleep 1000 & exit 3`)}.Run(t.Context())
	require.NoError(t, err)
	group, err := strconv.Atoi(strings.TrimSpace(string(out.Stdout)))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(-group, syscall.SIGKILL))
	require.Equal(t, "oops\n", string(out.Stderr))
	require.Equal(t, 3, out.ExitCode)
}

func TestExecRunsInAGroupOfItsOwn(t *testing.T) {
	out, err := nvidiasmi.Exec{Path: script(t, `cut -d' ' -f5 /proc/self/stat`)}.Run(t.Context())
	require.NoError(t, err)
	group, err := strconv.Atoi(strings.TrimSpace(string(out.Stdout)))
	require.NoError(t, err)
	require.NotEqual(t, syscall.Getpgrp(), group)
}
