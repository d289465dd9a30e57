package disk

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// MaxFileSize is a limit that the tests pass.
const MaxFileSize = maxFileSize

// OnStep calls f between the steps of a write.
func (s *Store) OnStep(f func(step string)) { s.step = f }

// ParseBackup reads root's copy of the state files.
func ParseBackup(data []byte) (envs, devices []byte, err error) {
	b, err := parseBackup(data)
	if err != nil {
		return nil, nil, err
	}
	return b.contents[state.Envs], b.contents[state.Devices], nil
}

// RootNote is root's note about a state folder.
type RootNote struct{ bootNote }

// RootNote reads the note.
func (s *Store) RootNote(t testing.TB) RootNote {
	t.Helper()
	root, err := s.openRoot()
	require.NoError(t, err)
	defer root.Close()
	return RootNote{*readNote(root, rootNote)}
}

// Refusal says why root's genv in these namespaces may not clean up the folder, if the
// note inside it has this content.
func (n RootNote) Refusal(namespaces system.Namespaces, inside string) string {
	now := n.bootNote
	now.Namespaces = namespaces
	return now.refusal(&n.bootNote, now.ofSameBoot(parseNote([]byte(inside))), true, n.Device)
}
