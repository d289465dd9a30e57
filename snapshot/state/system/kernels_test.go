package system

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
)

// The look for files ends with the time for it, and not only its answer is dropped.
func TestTheLookForKernelFilesEndsInTime(t *testing.T) {
	home, me := t.TempDir(), snapshot.UID(os.Getuid())
	runtime, passwd := filepath.Join(home, ".local/share/jupyter/runtime"), filepath.Join(home, "passwd")
	require.NoError(t, os.MkdirAll(runtime, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(runtime, "kernel-k.json"), []byte("{}"), 0o600))
	require.NoError(t, os.WriteFile(passwd, []byte("me:x:"+strconv.FormatUint(uint64(me), 10)+":1::"+home+":/bin/sh\n"), 0o600))
	machine := newProcfs(t.TempDir(), nss.Passwd{File: passwd})
	k := Kernel{ID: "k", UID: me}
	ctx, cancel := context.WithCancel(t.Context())
	require.Equal(t, Alive, machine.kernelFilesOf(ctx, me, nil, []Kernel{k})[k])
	cancel()
	require.Empty(t, machine.kernelFilesOf(ctx, me, nil, []Kernel{k}))
}
