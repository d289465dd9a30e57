package auth

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote/sshclient/config"
)

// MaxTries is how many keys are offered to a server: sshd's default limit.
const MaxTries = 6

// Options of a Keyring.
type Options struct {
	// Prompt asks the user on a terminal for a passphrase; nil where nobody can
	// be asked: such keys are then used through the agent or not at all.
	Prompt func(question string) ([]byte, error)
	Log    zerolog.Logger
}

// Keyring keeps agents' connections and the keys that were read. It is safe for
// concurrent use.
type Keyring struct {
	options Options
	mu      sync.Mutex
	agents  map[string]*agentConn
	files   map[string]*keyFile
	done    bool
	closed  chan struct{} // frees who waits for a passphrase

	asking   sync.Mutex // one question at a time on a terminal
	answered atomic.Int64
}

// NewKeyring opens nothing yet.
func NewKeyring(o Options) *Keyring {
	return &Keyring{options: o, agents: map[string]*agentConn{}, files: map[string]*keyFile{}, closed: make(chan struct{})}
}

// Close ends the connections to agents.
func (k *Keyring) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.done {
		k.done = true
		close(k.closed)
	}
	for _, a := range k.agents {
		a.drop()
	}
}

// AnsweredSince tells whether the user was asked for a passphrase and answered
// after the time given: a deadline that passed meanwhile was not the host's.
func (k *Keyring) AnsweredSince(start time.Time) bool {
	return k.answered.Load() > start.UnixNano()
}

// Keys are what to offer, in order, and what an administrator should know if
// none is accepted.
type Keys struct {
	Signers []ssh.Signer
	Notes   []string
}

// Tried is one line for the message of a refusal.
func (k Keys) Tried() string {
	if len(k.Signers) == 0 {
		return strings.Join(append([]string{"there is no key to offer"}, k.Notes...), "; ")
	}
	prints := make([]string, len(k.Signers))
	for i, signer := range k.Signers {
		prints[i] = signer.PublicKey().Type() + " " + ssh.FingerprintSHA256(signer.PublicKey())
	}
	return strings.Join(append([]string{"tried " + strings.Join(prints, ", ")}, k.Notes...), "; ")
}

// Keys gathers them as ssh does: configured keys that the agent holds, the
// agent's others unless IdentitiesOnly, then key files; for each key its
// certificates first.
func (k *Keyring) Keys(s config.HostConfig) Keys {
	keys, offer := Keys{}, offer{seen: map[string]bool{}}
	held, err := k.held(s.IdentityAgent)
	if err != nil {
		keys.Notes = append(keys.Notes, err.Error())
	}
	identities, notes := k.identities(s)
	keys.Notes = append(keys.Notes, notes...)
	for _, id := range identities {
		offer.add(id.with(held[string(id.public.Marshal())])...)
	}
	if !s.IdentitiesOnly {
		for _, signer := range inOrder(held) {
			offer.add(signer)
		}
	}
	for _, id := range identities {
		offer.add(id.with(id.signer)...)
	}
	keys.Signers = offer.signers
	if over := len(keys.Signers) - MaxTries; over > 0 {
		keys.Signers = keys.Signers[:MaxTries]
		keys.Notes = append(keys.Notes, fmt.Sprintf("%d more keys were not offered, since servers stop at %d: name the right one with IdentityFile and IdentitiesOnly yes", over, MaxTries))
	}
	return keys
}

// offer is a list of signers in which a key stands once.
type offer struct {
	seen    map[string]bool
	signers []ssh.Signer
}

func (o *offer) add(signers ...ssh.Signer) {
	for _, signer := range signers {
		if name := string(signer.PublicKey().Marshal()); !o.seen[name] {
			o.seen[name] = true
			o.signers = append(o.signers, signer)
		}
	}
}
