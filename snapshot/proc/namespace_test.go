package proc_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

func TestCheckNamespace(t *testing.T) {
	require.NoError(t, proc.FS{}.CheckNamespace())

	fs := mount(t)
	require.ErrorIs(t, fs.CheckNamespace(), os.ErrNotExist)
	self := filepath.Join(fs.Root, "self")
	require.NoError(t, os.Symlink(strconv.Itoa(os.Getpid()+1), self))
	require.ErrorContains(t, fs.CheckNamespace(), fs.Root+" is of another PID namespace")
	require.NoError(t, os.Remove(self))
	require.NoError(t, os.Symlink(strconv.Itoa(os.Getpid()), self))
	require.NoError(t, fs.CheckNamespace())
}

func TestNamespace(t *testing.T) {
	name, err := proc.FS{}.Namespace(snapshot.PID(os.Getpid()))
	require.NoError(t, err)
	require.Regexp(t, `^pid:\[\d+\]$`, name)
	_, err = mount(t).Namespace(5)
	require.ErrorIs(t, err, os.ErrNotExist)
}
