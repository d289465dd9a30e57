package grant

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/quota"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// TokenLife is how long a token is valid. `docker run` may download the image first.
const TokenLife = 10 * time.Minute

// MaxToken limits the text of a token, in bytes.
const MaxToken = 128

// Limits for tokens that aren't redeemed. A user who exceeds them loses the oldest one.
const (
	maxTokens       = 4096
	maxTokensOfUser = 64
)

// ProvedUser is the user for whom a container is started.
type ProvedUser struct {
	UID snapshot.UID   `json:"uid"`
	EID snapshot.EnvID `json:"eid,omitempty"` // named by the user; empty for none
}

// Tokens has the tokens of one service. It is safe for concurrent use.
type Tokens struct {
	Now func() time.Time

	mu     sync.Mutex
	issued []issued // the oldest first
}

// issued is a redeemable token, without its text.
type issued struct {
	sum    [sha256.Size]byte
	holder ProvedUser
	until  time.Time
}

// Issue makes a token. Its error wraps state.ErrRequest.
func (t *Tokens) Issue(h ProvedUser) (string, error) {
	if h.EID != "" && snapshot.Claim(string(h.EID)) != h.EID {
		return "", fmt.Errorf("%w: no environment has such an id", state.ErrRequest)
	}
	text, now := rand.Text(), t.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.issued = slices.DeleteFunc(t.issued, func(i issued) bool { return !now.Before(i.until) })
	var own []int
	for i := range t.issued {
		if t.issued[i].holder.UID == h.UID {
			own = append(own, i)
		}
	}
	switch full := !quota.Leaves(len(own), len(t.issued), maxTokens); {
	case full && len(own) == 0:
		return "", fmt.Errorf("%w: too many users have tokens, try again", state.ErrRequest)
	case full || len(own) >= maxTokensOfUser:
		t.issued = slices.Delete(t.issued, own[0], own[0]+1)
	}
	t.issued = append(t.issued, issued{sha256.Sum256([]byte(text)), h, now.Add(TokenLife)})
	return text, nil
}

// Redeem returns a token's user once; ok is false if it was redeemed, is too old, or was never issued.
func (t *Tokens) Redeem(text string) (h ProvedUser, ok bool) {
	sum, now := sha256.Sum256([]byte(text)), t.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.issued, func(i issued) bool { return i.sum == sum })
	if i < 0 {
		return ProvedUser{}, false
	}
	found := t.issued[i]
	t.issued = slices.Delete(t.issued, i, i+1)
	return found.holder, now.Before(found.until)
}

// RestartLife is how long after its last start a container can be restarted for its user.
const RestartLife = 90 * 24 * time.Hour

// ErrUnknownStart means that no earlier start proves a container's user.
var ErrUnknownStart = errors.New("no earlier start of this container proves its user")

const restartFolder = "container-users" // in RestartNotes.Dir

// RestartNotes has the notes in root's folder Dir, usually /var/lib/genv.
type RestartNotes struct {
	Dir string
	Now func() time.Time
}

// RestartNote says for whom a container was started.
type RestartNote struct {
	ID string `json:"id"`
	ProvedUser
	Runtime string    `json:"runtime"`
	Token   string    `json:"token"` // the hash of the token
	Started time.Time `json:"started"`
}

func hashedToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func restartNote(id string) folder.Note[RestartNote] {
	const maxRestartNote = 4 << 10
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

// Write writes the note about a start for a user with a token.
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
	dir, err := parent.PrivateSub(restartFolder, 0o755)
	if err != nil {
		return err
	}
	defer dir.Close()
	return restartNote(note.ID).Put(dir, note)
}

// Find returns the note about a container that an engine restarts with a token. An error wraps ErrUnknownStart.
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

// Prune removes old notes, and notes about containers that are gone. gone returns false if unknown.
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
