package disk_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

// changeUnderStrace is a child that changes root's state under strace(1), and what it came to.
func changeUnderStrace(t *testing.T, h *ownedHost, options ...string) (string, error) {
	t.Helper()
	args := append([]string{"--follow-forks", "--quiet=all", "--signal=none"}, options...)
	for _, dir := range []string{h.owned(""), h.dir} {
		args = append(args, "--trace-path="+filepath.Clean(dir))
		for _, name := range []string{"envs.json", "devices.json"} {
			args = append(args, "--trace-path="+filepath.Join(dir, name+".tmp"))
		}
	}
	change := child(t.Context(), "move-and-die", h.dir, h.root, "change", "none")
	cmd := exec.CommandContext(t.Context(), "/usr/bin/strace", append(append(args, change.Path), change.Args[1:]...)...)
	cmd.Env = change.Env
	self := proctest.Try(os.Executable()).OK(t)
	cmd.Args[len(args)+1] = self // /proc/self/exe would be strace(1)
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// A change in root's state that is killed at any system call that changes files is made as a
// whole or not at all, and the next one is made.
func TestChangesKilledAtEachSystemCall(t *testing.T) {
	proctest.NeedRoot(t)
	proctest.NeedPrograms(t, "strace")
	t.Parallel()
	const calls = "write,fchmod,fsync,renameat,unlinkat"
	probe := newOwnedHost(t)
	probe.takeOver(t)
	list := filepath.Join(t.TempDir(), "calls")
	output, err := changeUnderStrace(t, probe, "--trace="+calls, "--output="+list)
	require.Error(t, err)
	require.Contains(t, output, "lived on")
	made := bytes.Split(bytes.TrimSpace([]byte(proctest.ReadText(t, list))), []byte("\n"))
	require.Greater(t, len(made), 10, "%s", made)
	synced := 0 // the last of root's files
	for i, call := range made {
		if bytes.Contains(call, []byte("fsync(")) {
			synced = i
		}
	}
	for i, call := range made {
		t.Run(fmt.Sprintf("%d %s", i+1, proctest.NameOfCall(call)), func(t *testing.T) {
			t.Parallel()
			h := newOwnedHost(t)
			h.takeOver(t)
			kinds := map[string]int{}
			kind := ""
			for _, earlier := range made[:i+1] {
				kind = proctest.NameOfCall(earlier)
				kinds[kind]++
			}
			output, err := changeUnderStrace(t, h, "--trace="+calls, "--output=/dev/null", fmt.Sprintf("--inject=%s:signal=KILL:when=%d", kind, kinds[kind]))
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal(), output)
			files := read(t, h.store)
			require.Len(t, files.AttachedTo("7"), 1)
			if i > synced {
				require.Len(t, files.AttachedTo("20"), 1)
			}
			require.NoError(t, h.store.Update(t.Context(), enter(8)))
			require.NoError(t, h.store.Publish())
			for _, name := range []string{"envs.json", "devices.json"} {
				require.Equal(t, proctest.ReadText(t, h.owned(name)), proctest.ReadText(t, filepath.Join(h.dir, name)))
			}
			require.NotContains(t, proctest.Names(t, h.owned("")), "envs.json.tmp")
		})
	}
}

// enter is an update that changes both files.
func enter(pid snapshot.PID) func(*state.Files) error {
	return func(b *state.Files) error {
		eid := snapshot.EnvID(fmt.Sprint(pid))
		err := b.Activate(state.Activation{EID: eid, UID: snapshot.UID(os.Getuid()), PID: pid, At: at("12:00:00")})
		if err != nil {
			return err
		}
		_, err = b.Attach(state.AttachRequest{EID: eid, Count: 1, At: at("12:00:01")})
		return err
	}
}

// firstUse is a child: DIR UMASK, uses a folder for the first time.
func firstUse(args []string) error {
	syscall.Umask(number(args[1]))
	store := everyoneLives(args[0])
	if _, err := store.RegisterDevices(context.Background(), gpus(2)); err != nil {
		return err
	}
	if err := store.Update(context.Background(), enter(7)); err != nil {
		return err
	}
	release, err := store.LockDevices(context.Background(), []snapshot.DeviceIndex{0, 1})
	if err == nil {
		release()
	}
	return err
}

// dieAt is a child: DIR STEP, kills itself at a step of a write.
func dieAt(args []string) error {
	store := everyoneLives(args[0])
	store.OnStep(func(step string) {
		if step == args[1] {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	})
	return fmt.Errorf("lived on past the step %q: %w", args[1], store.Update(context.Background(), enter(20)))
}

// hold is a child: DIR, holds the lock until its stdin is closed.
func hold(args []string) error {
	return everyoneLives(args[0]).Update(context.Background(), func(*state.Files) error {
		fmt.Println("held")
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	})
}

// printOwners is a child: DIR, reads the state files as an ordinary user.
func printOwners(args []string) error {
	files, err := disk.New(args[0], disk.Config{}).Read(context.Background())
	for _, e := range files.Environments {
		fmt.Printf("%s %v %v\n", e.EID, e.PIDs, e.OwnerMismatch)
	}
	return err
}

// look is a child that reads the folder in args[0] with root's notes in args[1].
func look(args []string) error {
	files, err := disk.New(args[0], disk.Config{RootDir: args[1]}).Read(context.Background())
	fmt.Printf("%d environments, liveness unknown: %v, warnings %q\n", len(files.Environments), files.LivenessUnknown, files.Warnings)
	return err
}
