package host_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/cmd/genv/host"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/doctor"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// serveWithFault starts the service under strace(1), which makes the nth call of a kind on a
// path of root's state, in each thread, fail or kills the service at it.
func (h *ownHost) serveWithFault(fault string, nth int, path string) {
	h.t.Helper()
	call, _, _ := strings.Cut(fault, ":")
	cmd := h.as(0, "host", "serve")
	words := []string{"strace", "--follow-forks", "--quiet=all", "--output=" + filepath.Join(h.dir, "faults"), "--trace=" + call, fmt.Sprintf("--inject=%s:when=%d", fault, nth), "--trace-path=" + path}
	cmd.Args = append(append(words, h.binary), cmd.Args[1:]...)
	cmd.Path = "/usr/bin/strace"
	require.NoError(h.t, cmd.Start())
	pid := 0
	h.t.Cleanup(func() { // strace(1), which the test's context kills, leaves the service alone
		if exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); strings.HasPrefix(exe, h.dir) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_ = cmd.Wait()
	})
	require.Eventually(h.t, func() bool { pid = h.servicePID(); return pid != 0 }, 30*time.Second, 20*time.Millisecond)
}

// faults is how many calls have failed so.
func (h *ownHost) faults() int {
	return strings.Count(proctest.ReadText(h.t, filepath.Join(h.dir, "faults")), "(INJECTED)")
}

func (h *ownHost) servicePID() int {
	var status struct{ Service *struct{ PID int } }
	text, _ := h.does(0, "host", "status", "--format", "json")
	if json.Unmarshal([]byte(text), &status) != nil || status.Service == nil {
		return 0
	}
	return status.Service.PID
}

// Whatever call on root's state fails or is the last one of the service: what was answered is
// there, and what fails is said.
func TestTheServiceLosesNothingByFaults(t *testing.T) {
	proctest.NeedPrograms(t, "strace")
	const folder, newFile = "root/host", "root/host/envs.json.tmp" // of file descriptors, below the host's folder
	const argument = "envs.json.tmp"                               // of a call; the copy has the second one, which may fail unnoticed
	for name, row := range map[string]struct {
		fault string
		nth   int
		path  string
	}{
		"no space is left":              {"write:error=ENOSPC", 2, newFile},
		"the file isn't synced":         {"fsync:error=EIO", 2, newFile},
		"the folder isn't synced":       {"fsync:error=EIO", 1, folder},
		"killed as it syncs the file":   {"fsync:signal=KILL", 2, newFile},
		"killed as it syncs the folder": {"fsync:signal=KILL", 2, folder},
		"not renamed":                   {"renameat:error=EIO", 1, argument},
		"killed as it renames":          {"renameat:signal=KILL", 1, argument},
	} {
		t.Run(name, func(t *testing.T) {
			h := newOwnHost(t) // before another test forks: a program that is being written can't be run
			t.Parallel()
			job := proctest.Sleeper(t, 4001)
			h.must(4001, "envs", "activate", "--eid", "job", "--pid", fmt.Sprint(job))
			first := h.serve()
			require.NoError(t, first.Process.Signal(syscall.SIGTERM))
			require.NoError(t, first.Wait())

			path := row.path
			if path != argument {
				path = filepath.Join(h.dir, path)
			}
			h.serveWithFault(row.fault, row.nth, path)
			unsure := 0
			change := func(name string) bool {
				text, ok := h.does(4001, "envs", "config", "--eid", "job", "name", "--name", name)
				if !ok {
					require.Regexp(t, "no space left|input/output error|unknown whether|not running", text)
					if strings.Contains(text, "sync the folder") {
						require.Contains(t, text, "it is unknown whether the change was made; to ask for it again does no harm")
						unsure++
					}
				}
				return ok
			}
			answered, unanswered, failed, spared := "", []string{}, false, false
			for i := 0; i < 50 && (!failed || i < 5); i++ {
				value, before := fmt.Sprintf("name-%d", i), h.faults()
				ok := change(value)
				hits := h.faults() - before
				if ok {
					answered, unanswered, spared = value, nil, spared || hits > 0
				} else { // what is done again can be by a thread that has its own fault in it
					unanswered, failed = append(unanswered, value), failed || name != "no space is left" || hits < 2
				}
				require.Regexp(t, "("+strings.Join(append(unanswered, answered), "|")+`)"`, h.must(0, "usage", "snapshot", "--type", "envs"))
			}
			require.Equal(t, name != "no space is left", failed, "there are blocks for what has no space")
			require.True(t, failed || spared, "the fault has happened")
			require.Equal(t, name == "the folder isn't synced", unsure > 0)
			if strings.Contains(row.fault, "KILL") {
				require.Zero(t, h.servicePID())
				h.serve()
			}
			require.Eventually(t, func() bool { return change("last") }, 30*time.Second, time.Millisecond, "each thread of the service has its faults")
			require.Contains(t, h.must(0, "usage", "snapshot", "--type", "envs"), `"last"`)
		})
	}
}

func fill(t *testing.T, path string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	require.NoError(t, err)
	defer file.Close()
	for err == nil {
		_, err = file.WriteString("full")
	}
	require.ErrorIs(t, err, unix.ENOSPC)
}

// While the disk with root's state is full and has no blocks left for it, changes are refused and say why, all that was
// answered stays, also if the service is killed; and with room again it goes on.
func TestTheServiceOnAFullDisk(t *testing.T) {
	h := newOwnHost(t)
	t.Parallel()
	disk := filepath.Join(h.dir, "root/host")
	require.NoError(t, os.Mkdir(disk, 0o755))
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=64k,mode=0755"); errors.Is(err, unix.EPERM) && os.Getenv("CI") != "true" {
		t.Skip("no file system can be mounted here: ", err)
	} else {
		require.NoError(t, err) // in the tests' own mount namespace
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(disk, unix.MNT_DETACH)) })
	const alice = 4001
	pid := fmt.Sprint(proctest.Sleeper(t, alice))
	service := h.serve()
	h.must(alice, "envs", "activate", "--eid", "job", "--pid", pid)
	h.must(alice, "envs", "config", "--eid", "job", "name", "--name", "before")
	state := proctest.ReadFile(t, filepath.Join(disk, "envs.json"))

	filler := filepath.Join(disk, "filler")
	for range 2 {
		for _, name := range []string{"envs.json.spare", "devices.json.spare"} { // else there are blocks for a change
			_ = os.Remove(filepath.Join(disk, name))
		}
		fill(t, filler)
		for _, change := range [][]string{
			{"envs", "config", "--eid", "job", "name", "--name", "meanwhile"},
			{"envs", "activate", "--eid", "other", "--kernel-id", "k"},
			{"envs", "deactivate", "--pid", pid},
		} {
			text := h.fails(alice, change...)
			require.Contains(t, text, disk)
			require.Contains(t, text, "no space left on device")
		}
		require.Contains(t, h.must(alice, "envs"), "before")
		require.Equal(t, string(state), proctest.ReadText(t, filepath.Join(disk, "envs.json")))
		require.NoError(t, service.Process.Kill())
		_ = service.Wait()
		service = h.serve()
	}
	require.NoError(t, os.Remove(filler))
	h.must(alice, "envs", "config", "--eid", "job", "name", "--name", "afterwards")
	require.Contains(t, h.must(alice, "envs"), "afterwards")
	fill(t, filler)
	for _, name := range []string{"blocks", "again"} {
		h.must(alice, "envs", "config", "--eid", "job", "name", "--name", name)
	}
	require.Contains(t, h.must(alice, "envs"), "again")
}

func TestMain(m *testing.M) {
	host.ServeAndCrash()
	proctest.RunStall()
	genvtest.Main(m)
}

// TestDoctorKnowsTheOrderOfTheGuard: what the guard was ordered is compared with what it does.
func TestDoctorKnowsTheOrderOfTheGuard(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	order := guard.Order{Mode: guard.Enforce, LeaseMS: 60_000, By: "bob on jump"}
	for name, row := range map[string]struct {
		status *guard.Status
		want   doctor.GuardState
		cause  doctor.Cause
	}{
		"no order": {nil, doctor.GuardState{Mode: snapshot.GuardOff}, ""},
		"on": {
			&guard.Status{Mode: guard.Enforce, Until: now.Add(time.Minute), Order: &order, Given: now},
			doctor.GuardState{Mode: snapshot.GuardEnforce, Ordered: snapshot.GuardEnforce, By: order.By, Renewed: now},
			"",
		},
		"not renewed": {
			&guard.Status{Reason: "the time of its last order has ended", Order: &order, Given: now.Add(-time.Hour)},
			doctor.GuardState{Mode: snapshot.GuardOff, Ordered: snapshot.GuardEnforce, Reason: "the time of its last order has ended", By: order.By, Renewed: now.Add(-time.Hour)},
			"guard-not-renewed",
		},
		"it can't be done": {
			&guard.Status{Reason: "the guard can't be attached", Order: &order, Given: now},
			doctor.GuardState{Mode: snapshot.GuardUnable, Ordered: snapshot.GuardEnforce, Reason: "the guard can't be attached", By: order.By, Renewed: now},
			"guard-unable",
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			t.Setenv("GENV_ROOT_DIR", root)
			t.Setenv("GENV_TMPDIR", filepath.Join(root, "tmp"))
			require.NoError(t, os.Mkdir(filepath.Join(root, "run"), 0o755))
			if row.status != nil {
				require.NoError(t, guard.WriteStatus(filepath.Join(root, "run"), *row.status))
			}
			r := genvtest.Run(t, "doctor", "--format", "json", "--timeout", "1")
			var d doctor.HostDocument
			require.NoError(t, json.Unmarshal([]byte(r.Out), &d), r.Err)
			require.Equal(t, &row.want, d.Guard)
			for _, c := range d.Checks {
				if c.Name == doctor.Guard && row.cause != "" {
					require.Equal(t, row.cause, c.Cause)
					require.Contains(t, c.Detail, "bob on jump ordered enforce")
				}
			}
		})
	}
}
