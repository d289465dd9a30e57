package grant

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// TokenLife is how long a token can be redeemed. `docker run` may download the image first.
const TokenLife = 10 * time.Minute

// MaxToken bounds the text of a token, in bytes.
const MaxToken = 128

// maxTokensOfUser bounds the tokens of one user that are not redeemed yet. Then the oldest one
// is lost.
const maxTokensOfUser = 64

// maxTokenUsers bounds for how many users there are tokens.
const maxTokenUsers = 4096

// Holder is who a token is for.
type Holder struct {
	UID snapshot.UID   `json:"uid"`
	EID snapshot.EnvID `json:"eid,omitempty"` // the environment that the user named; empty for none
}

// Tokens are those of one service. The zero value has none. Any number of goroutines may
// use it.
type Tokens struct {
	Now func() time.Time // nil is time.Now

	mu    sync.Mutex
	users map[snapshot.UID][]issued // the oldest first
}

// issued is a token that can be redeemed. Its text isn't kept.
type issued struct {
	sum    [sha256.Size]byte
	holder Holder
	until  time.Time
}

// Issue makes a token. Its error wraps state.ErrRequest.
func (t *Tokens) Issue(h Holder) (string, error) {
	if h.EID != "" && snapshot.Claim(string(h.EID)) != h.EID {
		return "", fmt.Errorf("%w: no environment has such an id", state.ErrRequest)
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // it never fails
	text := base64.RawURLEncoding.EncodeToString(secret)
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.users == nil {
		t.users = map[snapshot.UID][]issued{}
	}
	if len(t.users) >= maxTokenUsers {
		t.dropExpired(now)
	}
	own := t.users[h.UID]
	if own == nil && len(t.users) >= maxTokenUsers {
		return "", fmt.Errorf("%w: too many users have tokens, try again", state.ErrRequest)
	}
	if len(own) >= maxTokensOfUser {
		own = own[len(own)-maxTokensOfUser+1:]
	}
	t.users[h.UID] = append(own[:len(own):len(own)], issued{sha256.Sum256([]byte(text)), h, now.Add(TokenLife)})
	return text, nil
}

// Redeem returns who a token is for, once. ok is false for one that was redeemed, that is
// too old, or that was never issued.
func (t *Tokens) Redeem(text string) (h Holder, ok bool) {
	sum, now := sha256.Sum256([]byte(text)), t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for uid, own := range t.users {
		for i := range own {
			if own[i].sum != sum {
				continue
			}
			found := own[i]
			t.set(uid, append(own[:i:i], own[i+1:]...))
			return found.holder, now.Before(found.until)
		}
	}
	return Holder{}, false
}

func (t *Tokens) dropExpired(now time.Time) {
	for uid, own := range t.users {
		for len(own) > 0 && !now.Before(own[0].until) {
			own = own[1:]
		}
		t.set(uid, own)
	}
}

func (t *Tokens) set(uid snapshot.UID, own []issued) {
	if len(own) == 0 {
		delete(t.users, uid)
		return
	}
	t.users[uid] = own
}

func (t *Tokens) now() time.Time {
	if t.Now == nil {
		return time.Now()
	}
	return t.Now()
}
