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
