package disk_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// Who removes envs.json right before a genv 1.4.3 is used leaves a valid, empty
// file: what still runs is registered again, as is what 1.4.3 dropped with its shell.
func TestRunningProcessesAreRegisteredAgain(t *testing.T) {
	tests := []struct {
		name     string
		running  []system.RunningProcess
		taken    bool // its device, meanwhile
		want     []snapshot.PID
		attached indices
	}{
		{name: "a job still runs", running: []system.RunningProcess{job(50, alice, "1102")}, want: []snapshot.PID{50}, attached: indices{0}},
		{name: "its device has another user", running: []system.RunningProcess{job(50, alice, "1102")}, taken: true, want: []snapshot.PID{50}},
		{name: "nothing runs"},
		{name: "the shell itself has left", running: []system.RunningProcess{with(job(1102, alice, "1102"), func(r *system.RunningProcess) { r.Name = "bash" })}},
		{name: "a job that was registered itself still runs", running: []system.RunningProcess{job(1102, alice, "1102")}, want: []snapshot.PID{1102}, attached: indices{0}},
		{name: "another user's process", running: []system.RunningProcess{job(50, bob, "1102")}},
		{name: "an ssh-agent is no work", running: []system.RunningProcess{with(job(50, alice, "1102"), func(r *system.RunningProcess) { r.Name = "ssh-agent" })}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			store, machine, dir, _ := kept(t)
			machine.running = tt.running
			legacy := &fakeSystem{}
			require.NoError(t, disk.New(dir, disk.Config{System: legacy}).Update(t.Context(), func(b *state.Files) error {
				b.Environments = nil
				b.Detach("1102")
				if !tt.taken {
					return nil
				}
				if err := b.Activate(state.Activation{EID: "9", UID: bob, PID: 9, At: at("12:00:00")}); err != nil {
					return err
				}
				_, err := b.Attach(state.AttachRequest{EID: "9", Count: 1, At: at("12:00:00")})
				return err
			}))
			for range 2 {
				files, err := store.Read(t.Context())
				require.NoError(t, err)
				env := files.Environment("1102")
				require.Equal(t, tt.want != nil, env != nil)
				if env != nil {
					require.Equal(t, tt.want, env.PIDs)
					require.Equal(t, alice, env.UID)
				}
				require.Equal(t, tt.attached, files.AttachedTo("1102"))
			}
		})
	}
}

// An environment that vanished proves that others may have, which began after the
// copy; a file that lacks none proves nothing.
func TestNewerEnvironmentsAreRecoveredToo(t *testing.T) {
	for _, goesOn := range []bool{true, false} {
		store, machine, dir, _ := kept(t)
		machine.running = []system.RunningProcess{job(6000, bob, "2020")}
		if goesOn {
			machine.running = append(machine.running, job(50, alice, "1102"))
		}
		put(t, dir, "envs.json", `{"envs": []}`)
		files, err := store.Read(t.Context())
		require.NoError(t, err)
		require.Equal(t, goesOn, files.Environment("1102") != nil)
		require.Equal(t, goesOn, files.Environment("2020") != nil)
		require.Equal(t, goesOn, files.InRestorationGrace(6000, time.Now()))
	}
}

// Any number of environments of any number of users may be lost.
func TestProcessesOfManyUsersAreReadOnce(t *testing.T) {
	store, machine, dir, _ := kept(t)
	const count = 300
	require.NoError(t, store.Update(t.Context(), func(b *state.Files) error {
		for i := range snapshot.PID(count) {
			b.Environments = append(b.Environments, snapshot.Environment{
				EID: snapshot.EnvID(strconv.Itoa(int(10_000 + i))), UID: snapshot.UID(100_000 + i), Creation: at("12:00:00"), PIDs: []snapshot.PID{10_000 + i},
			})
		}
		return nil
	}))
	for i := range snapshot.PID(count) {
		machine.running = append(machine.running, job(10_000+i, snapshot.UID(100_000+i), snapshot.EnvID(strconv.Itoa(int(10_000+i)))))
	}
	machine.walks = 0
	put(t, dir, "envs.json", `{"envs": []}`)
	files, err := store.Read(t.Context())
	require.NoError(t, err)
	require.Len(t, files.Environments, count)
	require.Equal(t, 2, machine.walks, "for all that are lost, and for what began since")
}

// Who writes another uid into another user's environment leaves it without a process of
// its user: so it ends, and is the right user's again.
func TestAnEnvironmentOfAnotherUserNowIsRegisteredAgain(t *testing.T) {
	store, machine, dir, _ := kept(t)
	owner := alice
	machine.processes = map[snapshot.PID]system.ProcessStatus{1102: {Liveness: system.Alive, Owner: &owner}}
	machine.running = []system.RunningProcess{job(50, alice, "1102")}
	require.NoError(t, disk.New(dir, disk.Config{System: &fakeSystem{}}).Update(t.Context(), func(b *state.Files) error {
		b.Environment("1102").UID = bob
		return nil
	}))
	files, err := store.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, alice, files.Environment("1102").UID)
	require.Equal(t, indices{0}, files.AttachedTo("1102"))
}

const owner = 64999 // a uid without an account

// Root repairs what a user did to the folder, and says so.
func TestRootRepairsTheFolder(t *testing.T) {
	proctest.NeedRoot(t)
	tests := map[string]func(t *testing.T, dir string){
		"envs.json had mode 0000":         func(t *testing.T, dir string) { shut(t, filepath.Join(dir, "envs.json")) },
		"devices.json had mode 0000":      func(t *testing.T, dir string) { shut(t, filepath.Join(dir, "devices.json")) },
		"genv.lock":                       func(t *testing.T, dir string) { shut(t, filepath.Join(dir, "genv.lock")) },
		"genv of uid 64999 had mode 0000": func(t *testing.T, dir string) { shut(t, dir) },
		"genv.lock ": func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "genv.lock")))
			require.NoError(t, os.Mkdir(filepath.Join(dir, "genv.lock"), 0o700))
		},
		" genv.lock": func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "genv.lock")))
			require.NoError(t, os.Symlink("/etc/shadow", filepath.Join(dir, "genv.lock")))
		},
		"  genv.lock": func(t *testing.T, dir string) { lease(t, filepath.Join(dir, "genv.lock")) },
		"genv.lock  ": func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "genv.lock")))
			require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "genv.lock"), 0o600))
		},
		"genv was not a folder: uid 64999": func(t *testing.T, dir string) {
			require.NoError(t, os.Rename(dir, dir+".mine"))
			require.NoError(t, os.Symlink("/etc", dir))
			require.NoError(t, os.Lchown(dir, owner, owner))
		},
		"genv was not a folder: uid 64999 ": func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(dir))
			require.NoError(t, os.WriteFile(dir, nil, 0o600))
			require.NoError(t, os.Chown(dir, owner, owner))
		},
	}
	for says, harm := range tests {
		t.Run(says, func(t *testing.T) {
			store, _, dir, _ := kept(t)
			harm(t, dir)
			files, err := store.Read(t.Context())
			require.NoError(t, err)
			require.Equal(t, indices{0}, files.AttachedTo("1102"))
			require.NotEmpty(t, files.Warnings)
			require.Contains(t, strings.ReplaceAll(files.Warnings[len(files.Warnings)-1]+files.Warnings[0], "of uid 64999 (", "("), strings.TrimSpace(strings.SplitN(says, " had", 2)[0]))
			for name, mode := range map[string]os.FileMode{"": 0o777 | os.ModeDir, "envs.json": 0o666, "devices.json": 0o666, "genv.lock": 0o666} {
				info, err := os.Lstat(filepath.Join(dir, name))
				require.NoError(t, err)
				require.Equal(t, mode, info.Mode(), name)
			}
			files, err = store.Read(t.Context())
			require.NoError(t, err)
			require.Empty(t, files.Warnings, "said once")
		})
	}
}

// shut takes a file from all others.
func shut(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.Chown(path, owner, owner))
	require.NoError(t, os.Chmod(path, 0))
}

// What root itself made narrower stays so, and so does a user's own file that
// is in the place of a lock.
func TestRootDoesNotRepairItsOwnFiles(t *testing.T) {
	proctest.NeedRoot(t)
	store, _, dir, _ := kept(t)
	require.NoError(t, os.Chmod(filepath.Join(dir, "envs.json"), 0o644))
	files, err := store.Read(t.Context())
	require.NoError(t, err)
	require.Empty(t, files.Warnings)
	info, err := os.Stat(filepath.Join(dir, "envs.json"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o644), info.Mode())

	secret := filepath.Join(dir, "genv.lock")
	require.NoError(t, os.Remove(secret))
	require.NoError(t, os.WriteFile(secret, []byte("a user's own"), 0o600))
	require.NoError(t, os.Chown(secret, 64999, 64999))
	_, err = store.Read(t.Context())
	require.NoError(t, err)
	aside, err := filepath.Glob(secret + ".corrupt-*")
	require.NoError(t, err)
	require.Len(t, aside, 1)
	info, err = os.Stat(aside[0])
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode(), "its content did not become public")
}

// failToWrite is a child: DIR ROOT WHAT, on a disk that is full.
func failToWrite(args []string) error {
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 64, Max: 64}); err != nil {
		return err
	}
	store := storeWithNotes(args[0], args[1])
	var err error
	switch args[2] {
	case "takeover":
		_, err = store.TakeOver(context.Background(), nil)
	case "handover":
		_, err = store.HandOver(context.Background(), nil)
	case "change":
		err = store.Update(context.Background(), enter(20))
	}
	if !errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("not the error of a full disk: %w", err)
	}
	return nil
}

// What fails in the middle, as on a full disk, leaves the state as it was, and is said.
func TestMovesAndChangesThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"takeover", "handover", "change"} {
		h := newOwnedHost(t)
		if what != "takeover" {
			h.takeOver(t)
		}
		if what == "handover" { // the copy has to be written again
			require.NoError(t, os.WriteFile(filepath.Join(h.dir, "envs.json"), []byte("[]"), 0o600))
		}
		output, err := child(t.Context(), "fail-to-write", h.dir, h.root, what).CombinedOutput()
		require.NoError(t, err, what+": "+string(output))
		h.requireState(t, "7")
		require.Equal(t, map[string]os.FileMode{"takeover": 0o777, "handover": 0o755, "change": 0o755}[what], mode(t, h.dir))
		require.Equal(t, what != "takeover", ownedDir(t, h.store) != "")
		require.NoError(t, h.store.Update(t.Context(), enter(8)))
		h.requireState(t, "7", "8")
	}
}
