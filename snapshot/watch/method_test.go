package watch

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestHowOpensAreWatched(t *testing.T) {
	dev := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dev, "nvidia0"), nil, 0o600))
	method, err := methodOf(dev, true)
	require.ErrorIs(t, err, unix.ENOSYS)
	require.Equal(t, ByInotify, method)
	if f, err := newFanotify(false); err != nil {
		t.Skipf("this process has no fanotify: %v", err)
	} else {
		f.close()
	}
	method, err = MethodOf(dev)
	require.NoError(t, err)
	require.Equal(t, ByFanotify, method)
}

// A file system that fanotify can't watch counts as no fanotify; a node that is gone doesn't.
func TestNodesThatFanotifyCannotWatch(t *testing.T) {
	requireFanotify(t)
	dev := t.TempDir()
	node := filepath.Join(dev, "nvidia0")
	require.NoError(t, os.WriteFile(node, nil, 0o600))
	f, err := openFanotify(false, []string{filepath.Join(dev, "gone"), node})
	require.NoError(t, err)
	f.close()
	_, err = openFanotify(false, []string{node, filepath.Join(node, "in a file")})
	require.ErrorIs(t, err, unix.ENOTDIR)
}
