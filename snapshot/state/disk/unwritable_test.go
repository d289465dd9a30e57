package disk_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// failToWrite is a child: DIR ROOT WHAT, on a disk that is full.
func failToWrite(args []string) error {
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 64, Max: 64}); err != nil {
		return err
	}
	store := storeWithNotes(args[0], args[1])
	var err error
	switch args[2] {
	case "takeover":
		_, _, err = store.TakeOver(context.Background(), nil)
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
