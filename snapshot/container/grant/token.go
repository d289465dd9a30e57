package grant

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/quota"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// TokenLife is how long a token can be redeemed. `docker run` may download the image first.
const TokenLife = 10 * time.Minute

// MaxToken bounds the text of a token, in bytes.
const MaxToken = 128

// How many tokens there are that are not redeemed yet. Of a user who has more, the oldest one is lost.
const (
	maxTokens       = 4096
	maxTokensOfUser = 64
)

// Holder is who a container is started for.
type Holder struct {
	UID snapshot.UID   `json:"uid"`
	EID snapshot.EnvID `json:"eid,omitempty"` // the environment that the user named; empty for none
}

// Tokens are those of one service. The zero value has none. Any number of goroutines may use it.
type Tokens struct {
	Now func() time.Time // nil is time.Now

	mu     sync.Mutex
	issued []issued // the oldest first
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
	text, now := rand.Text(), t.now()
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

// Redeem returns, once, who a token is for; ok is false if it is redeemed, too old, or was never issued.
func (t *Tokens) Redeem(text string) (h Holder, ok bool) {
	sum, now := sha256.Sum256([]byte(text)), t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.issued, func(i issued) bool { return i.sum == sum })
	if i < 0 {
		return Holder{}, false
	}
	found := t.issued[i]
	t.issued = slices.Delete(t.issued, i, i+1)
	return found.holder, now.Before(found.until)
}

func (t *Tokens) now() time.Time {
	if t.Now == nil {
		return time.Now()
	}
	return t.Now()
}
