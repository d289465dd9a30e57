package system

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// The look for files ends with the time for it, and not only its answer is dropped.
func TestTheLookForKernelFilesEndsInTime(t *testing.T) {
	home, me := t.TempDir(), snapshot.UID(os.Getuid())
	runtime, passwd := filepath.Join(home, ".local/share/jupyter/runtime"), filepath.Join(home, "passwd")
	require.NoError(t, os.MkdirAll(runtime, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(runtime, "kernel-k.json"), []byte("{}"), 0o600))
	require.NoError(t, os.WriteFile(passwd, []byte("me:x:"+strconv.FormatUint(uint64(me), 10)+":1::"+home+":/bin/sh\n"), 0o600))
	machine := NewWith(t.TempDir(), nss.Passwd{File: passwd}).(procfs)
	k := Kernel{ID: "k", UID: me}
	folders, complete := machine.runtimeFolders(t.Context(), me, nil)
	require.True(t, complete)
	require.Equal(t, Alive, machine.kernelFileIn(t.Context(), folders, true, k))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, Unknown, machine.kernelFileIn(ctx, folders, true, k))
}

// A process of which the command line isn't read may be that of any kernel of its user, and of no other user's.
func TestKernelsWhileAProcessIsNotRead(t *testing.T) {
	child := exec.Command("sleep", "60")
	require.NoError(t, child.Start())
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	pid, me := snapshot.PID(child.Process.Pid), snapshot.UID(os.Getuid())
	machine := New(RealProc).(procfs)
	mine, others := Kernel{ID: "k", UID: me}, Kernel{ID: "k", UID: me + 1}
	require.Equal(t, map[Kernel]Liveness{mine: Gone, others: Gone}, machine.runningKernels([]snapshot.PID{pid}, []Kernel{mine, others}))
	machine.fs.Reader = &proc.ReaderProcess{Command: []string{"sh", "-c", "echo {}; exec sleep 60"}} // a helper that starts, and doesn't answer
	require.Equal(t, map[Kernel]Liveness{mine: Unknown, others: Gone}, machine.runningKernels([]snapshot.PID{pid}, []Kernel{mine, others}))
}

// A folder that doesn't answer holds the helper, and not this process, which couldn't end then.
func TestAKernelFolderThatDoesNotAnswer(t *testing.T) {
	machine, k := New(RealProc).(procfs), Kernel{ID: "k", UID: snapshot.UID(os.Getuid())}
	machine.fs.Reader = &proc.ReaderProcess{Command: []string{"sh", "-c", "echo {}; exec sleep 60"}}
	require.Equal(t, Unknown, machine.kernelFile(t.TempDir(), k))
	began := time.Now()
	for range 100 {
		require.Equal(t, Unknown, machine.kernelFile(t.TempDir(), k))
	}
	require.Less(t, time.Since(began), 10*time.Second, "it is asked again after a while")
}

// However many users have folders that don't answer, a look ends in time.
func TestManyKernelFoldersThatDoNotAnswer(t *testing.T) {
	file, home := filepath.Join(t.TempDir(), "passwd"), t.TempDir()
	kernels, lines := map[snapshot.UID][]Kernel{}, ""
	for uid := snapshot.UID(70_001); uid < 70_013; uid++ {
		kernels[uid] = []Kernel{{ID: "k", UID: uid}}
		lines += fmt.Sprintf("u%d:x:%d:1::%s:/bin/sh\n", uid, uid, home)
	}
	require.NoError(t, os.WriteFile(file, []byte(lines), 0o600))
	machine := NewWith(RealProc, nss.Passwd{File: file}).(procfs)
	machine.fs.Reader = &proc.ReaderProcess{Command: []string{"sh", "-c", "echo {}; exec sleep 60"}}
	began := time.Now()
	for k, now := range machine.kernelFiles(nil, kernels) {
		require.Equal(t, Unknown, now, k)
	}
	require.Less(t, time.Since(began), 5*time.Second)
}
