package local_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// A subordinate uid is its account's. As long as that is unknown, what a process claims is, too.
func TestAccountsOfProcesses(t *testing.T) {
	etc, bin := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"passwd": "alice:x:1001:1001::/:/bin/sh\nerin:x:100500:1::/:/bin/sh\n", "subuid": "alice:100000:65536\nbob:165536:10\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(etc, name), []byte(text), 0o644))
	}
	require.NoError(t, proctest.WriteProgram(filepath.Join(bin, "getent"), []byte("#!/bin/sh\ncase \"$*\" in *165540*) exec sleep 60;; esac; exit 2\n")))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	m := newMachine(t)
	m.Proc.Accounts = &proc.Accounts{Etc: etc}
	m.process(50, 1001, 5, "A=1\x00")
	m.files.Environments = []snapshot.Environment{registered("7", 1001, 50), registered("8", 165540, 2)}
	uids := []int{1001, 100001, 100500, 70000, 165540}
	start := func(i int) {
		m.process(100+i, uids[i], 10, "GENV_ENVIRONMENT_ID=7\x00")
		m.write(fmt.Sprintf("%d/stat", 100+i), statOf(100+i, 50, "python3", "S", 10, 1010))
		m.smi.apps += fmt.Sprintf("GPU-0, %d, 10\n", 100+i)
	}
	for i := range 4 {
		start(i)
	}
	require.Eventually(t, func() bool { // a busy machine may take longer to ask
		return !slices.ContainsFunc(m.snapshot().Processes, func(p snapshot.Process) bool { return p.UID == nil })
	}, time.Minute, 10*time.Millisecond)
	start(4)
	began := time.Now()
	s := m.snapshot()
	require.Less(t, time.Since(began), 1900*time.Millisecond, "a directory that hangs is asked for 2 s")
	for i, want := range []snapshot.UID{1001, 1001, 100500, 70000} {
		require.Equal(t, want, *s.Processes[i].UID, uids[i])
		require.Equal(t, snapshot.EnvID("7"), s.Processes[i].EID)
	}
	_, err := m.Proc.Accounts.Wait(t.Context(), 165540)
	require.ErrorIs(t, err, proc.ErrAccountUnknown)
	p := s.Processes[4]
	require.Nil(t, p.UID)
	require.True(t, p.EnvUnknown && !p.EnvOverwritten && p.EID == "", "it is in no environment of anybody")
	require.Contains(t, strings.Join(s.Warnings, "\n"), "the owner of process 104: uid 165540: the account of a subordinate uid is unknown")
}

// TestTypesOfProcesses come with the snapshot where a display is active, and nowhere else is asked for them.
func TestTypesOfProcesses(t *testing.T) {
	const details = "<nvidia_smi_log><gpu><processes><process_info><pid>100</pid><type>C+G</type></process_info></processes></gpu></nvidia_smi_log>"
	for name, tt := range map[string]struct {
		displays [2]string // of GPU 0 and GPU 1
		details  string
		asked    []string
		types    []snapshot.ProcessType // of 100 on GPU 0, and of 101 on GPU 1
	}{
		"a display":     {[2]string{", Enabled", ", Disabled"}, details, []string{"devices", "details"}, []snapshot.ProcessType{"C+G", "C"}},
		"no answer":     {[2]string{", Enabled", ", Disabled"}, "", []string{"devices", "details"}, []snapshot.ProcessType{"?", ""}},
		"none at all":   {asked: []string{"devices", "details"}, types: []snapshot.ProcessType{"?", "?"}},
		"no display":    {[2]string{", Disabled", ", Disabled"}, "", []string{"devices"}, []snapshot.ProcessType{"", ""}},
		"not asked for": {types: []snapshot.ProcessType{"", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.process(100, 1000, 7, "HOME=/\x00")
			m.process(101, 1000, 7, "HOME=/\x00")
			m.smi.apps, m.smi.details = "GPU-0, 100, 11\nGPU-1, 101, 3\n", tt.details
			if tt.displays[0] != "" {
				m.smi.modes, m.smi.devices = []string{"display_active"}, ""
				for i, line := range slices.Collect(strings.Lines(twoDevices)) {
					m.smi.devices += strings.TrimSuffix(line, "\n") + tt.displays[i] + "\n"
				}
			}
			if tt.asked != nil {
				m.Types = new(nvidiasmi.Types)
			}
			s := m.snapshot()
			require.Equal(t, append([]string{"apps", "devices", "read"}, tt.asked...), m.take())
			require.Equal(t, tt.types, []snapshot.ProcessType{s.Processes[0].Usage[0].Type, s.Processes[1].Usage[0].Type})
		})
	}
}

// TestShortProcessesOnADesktop: of an account without a desktop, those compute that have no node of /dev/dri open.
func TestShortProcessesOnADesktop(t *testing.T) {
	node := filepath.Join(t.TempDir(), "card0")
	if err := unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(226, 0))); err != nil {
		t.Skip(err)
	}
	m, now := newMachine(t), time.Now()
	m.Types, m.Now = new(nvidiasmi.Types), func() time.Time { return now }
	m.smi.modes, m.smi.devices = []string{"display_active"}, "0, GPU-0, 81559, 10, 0, 31, 70.12, H100, Enabled\n"
	m.smi.details, m.smi.detailsAge = "<nvidia_smi_log><pid>90</pid><type>G</type></nvidia_smi_log>", 10*time.Second
	m.process(90, 1003, 5, "A=1\x00")
	next := 100
	look := func() (types []snapshot.ProcessType) {
		m.smi.apps, now = "", now.Add(30*time.Second)
		for uid := 1001; uid <= 1003; uid++ {
			next++
			m.process(next, uid, 5000+next, "A=1\x00")
			m.smi.apps += fmt.Sprintf("GPU-0, %d, 11\n", next)
			m.write(fmt.Sprintf("%d/maps", next), "7f00-7f01 rw-s 00000000 00:05 0\n") // without a file
			fd := filepath.Join(m.Proc.Root, strconv.Itoa(next), "fd")
			require.NoError(t, errors.Join(os.MkdirAll(fd, 0o755), os.MkdirAll(filepath.Join(fd, "../task"), 0o755)))
			if uid == 1002 {
				require.NoError(t, os.Symlink(node, filepath.Join(fd, "3")))
			}
		}
		for _, p := range m.snapshot().Processes {
			types = append(types, p.Usage[0].Type)
		}
		return types
	}
	for range 3 {
		require.Equal(t, []snapshot.ProcessType{"?", "?", "?"}, look(), "nvidia-smi is waited for")
	}
	require.Equal(t, []snapshot.ProcessType{"C", "?", "?"}, look(), "the second has a node, and the third a desktop")
	m.write("90/status", "Name:\tXorg\n")
	require.Equal(t, []snapshot.ProcessType{"?", "?", "?"}, look(), "any may have the desktop")
}
