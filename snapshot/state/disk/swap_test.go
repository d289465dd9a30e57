package disk_test

import (
	"context"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// whileSwapping runs look again and again for a moment, while another process
// changes things back and forth as fast as can be.
func whileSwapping(t *testing.T, swap, look func()) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			swap()
			runtime.Gosched()
		}
	}()
	for ctx.Err() == nil {
		look()
	}
	<-done
}

// Where fs.protected_symlinks is off, root must not be led elsewhere by who
// owns the folder and puts a link in its place, between a look at the link and
// the opening.
func TestALinkThatComesAndGoesInTheFoldersPlaceIsNeverFollowed(t *testing.T) {
	needsRoot(t)
	const theirs = 4001
	dir, elsewhere := sharedDir(t), t.TempDir()
	link := dir + ".link"
	require.NoError(t, os.MkdirAll(dir, 0o777))
	require.NoError(t, os.Symlink(elsewhere, link))
	require.NoError(t, os.Lchown(link, theirs, theirs))
	store := everyoneLives(dir)
	whileSwapping(t,
		func() { _ = unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE) },
		func() { _, _ = store.Read(t.Context()) })
	require.Empty(t, namesIn(t, elsewhere))
}
