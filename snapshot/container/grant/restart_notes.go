package grant

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// RestartLife is how long after its last start a container can be started again for its user.
const RestartLife = 90 * 24 * time.Hour

// ErrUnknownStart means that a container was not started for a user before, or that this can't be shown.
var ErrUnknownStart = errors.New("no earlier start of this container proves its user")

// restartFolder is the folder of the notes in the folder of what root's genv keeps.
const restartFolder = "container-users"

const maxRestartNote = 4 << 10

// RestartNotes are those in root's folder Dir, /var/lib/genv usually.
type RestartNotes struct {
	Dir string
	Now func() time.Time
}

// RestartNote is for whom a container was started.
type RestartNote struct {
	ID string `json:"id"`
	Holder
	Runtime string `json:"runtime"`
	// Token is the hash of the token.
	Token   string    `json:"token"`
	Started time.Time `json:"started"`
}

func hashedToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func restartNote(id string) folder.Note[RestartNote] {
	return folder.Note[RestartNote]{
		Name: id + ".json", Max: maxRestartNote, Mode: 0o600, Invalid: ErrUnknownStart,
		Check: func(n *RestartNote) error {
			if n.ID != id {
				return errors.New("it is about another container")
			}
			return nil
		},
	}
}

// Write writes the note of a container that was started for a user with a token. Only root calls it.
func (n RestartNotes) Write(note RestartNote, token string) error {
	if !container.IsID(note.ID) || token == "" {
		return fmt.Errorf("%w: its id or its token is missing", ErrUnknownStart)
	}
	note.Token, note.Started = hashedToken(token), n.Now().UTC()
	parent, err := folder.OpenTrusted(n.Dir)
	if err != nil {
		return err
	}
	defer parent.Close()
	dir, err := parent.PrivateSub(restartFolder)
	if err != nil {
		return err
	}
	defer dir.Close()
	return restartNote(note.ID).Put(dir, note)
}

// Find returns the note about a container that an engine starts again with a token. The error
// wraps ErrUnknownStart where there is none for this container, engine and token.
func (n RestartNotes) Find(id, runtime, token string) (RestartNote, error) {
	if !container.IsID(id) || token == "" {
		return RestartNote{}, ErrUnknownStart
	}
	note, err := restartNote(id).Read(n.path())
	switch {
	case err != nil:
		return RestartNote{}, fmt.Errorf("%w: %w", ErrUnknownStart, err)
	case note.Runtime != runtime, subtle.ConstantTimeCompare([]byte(note.Token), []byte(hashedToken(token))) != 1,
		n.old(note):
		return RestartNote{}, ErrUnknownStart
	}
	return note, nil
}

func (n RestartNotes) path() string { return filepath.Join(n.Dir, restartFolder) }

func (n RestartNotes) old(note RestartNote) bool { return n.Now().Sub(note.Started) > RestartLife }

// Prune removes the notes about containers that are gone, and those that are too old. gone
// asks the engine; it is false if that is unknown. Only root calls it.
func (n RestartNotes) Prune(gone func(RestartNote) bool) error {
	ids, err := container.ListNotes(n.path())
	if err != nil || len(ids) == 0 {
		return err
	}
	dir, err := folder.OpenTrusted(n.path())
	if err != nil {
		return err
	}
	defer dir.Close()
	for _, id := range ids {
		note, readErr := restartNote(id).Read(n.path())
		if readErr != nil || n.old(note) || gone(note) {
			err = cmp.Or(err, dir.Remove(id+".json"))
		}
	}
	return err
}
