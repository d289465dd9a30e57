package auth

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote/sshclient/config"
)

// MaxTries is how many keys are offered to a server, the default limit of sshd.
const MaxTries = 6

// Prompt asks the user for a passphrase on a terminal.
type Prompt func(question string) ([]byte, error)

// Keyring keeps the connections to agents and the keys that were read. It is safe
// for concurrent use.
type Keyring struct {
	prompt Prompt
	log    zerolog.Logger
	mu     sync.Mutex
	agents map[string]*agentConn
	files  map[string]*keyFile
	closed func() // closes done
	done   chan struct{}

	asking   sync.Mutex // one question at a time on a terminal
	answered atomic.Int64
}

// NewKeyring opens nothing yet. prompt is nil where there is no terminal: keys
// with a passphrase are then used through the agent or not at all.
func NewKeyring(prompt Prompt, log zerolog.Logger) *Keyring {
	done := make(chan struct{})
	return &Keyring{
		prompt: prompt, log: log, agents: map[string]*agentConn{}, files: map[string]*keyFile{},
		closed: sync.OnceFunc(func() { close(done) }), done: done,
	}
}

// Close ends the connections to agents, and the signing that waits for a passphrase.
func (k *Keyring) Close() {
	k.closed()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, a := range k.agents {
		a.close()
	}
}

// AnsweredSince says whether the user answered a question for a passphrase after
// the start: then a deadline that passed meanwhile was not the host's fault.
func (k *Keyring) AnsweredSince(start time.Time) bool {
	return k.answered.Load() > start.UnixNano()
}

// Keys are the keys to offer, in order, and notes for the administrator in case
// none is accepted.
type Keys struct {
	Signers []ssh.Signer
	Notes   []string
}

// Tried describes the keys and the notes in one line, for an error.
func (k Keys) Tried() string {
	tried := "there is no key to offer"
	for i, signer := range k.Signers {
		fingerprint := signer.PublicKey().Type() + " " + ssh.FingerprintSHA256(signer.PublicKey())
		if i == 0 {
			tried = "tried " + fingerprint
		} else {
			tried += ", " + fingerprint
		}
	}
	return strings.Join(append([]string{tried}, k.Notes...), "; ")
}

// Keys are those that ssh would offer: configured keys that the agent has, the
// agent's others unless IdentitiesOnly, then key files; for each key its
// certificates first.
func (k *Keyring) Keys(s config.HostConfig) Keys {
	var keys Keys
	inAgent, err := k.agentKeys(s.IdentityAgent)
	if err != nil {
		keys.Notes = append(keys.Notes, err.Error())
	}
	identities, notes := k.identities(s)
	keys.Notes = append(keys.Notes, notes...)
	for _, id := range identities {
		keys.add(id.with(find(inAgent, id.public))...)
	}
	if !s.IdentitiesOnly {
		keys.add(inAgent...)
	}
	for _, id := range identities {
		keys.add(id.with(id.signer)...)
	}
	keys.restrict(s)
	if over := len(keys.Signers) - MaxTries; over > 0 {
		keys.Signers = keys.Signers[:MaxTries]
		keys.Notes = append(keys.Notes, fmt.Sprintf("%d more keys were not offered, since servers stop at %d: name the right one with IdentityFile and IdentitiesOnly yes", over, MaxTries))
	}
	return keys
}

// add adds keys that are not in the list yet.
func (k *Keys) add(signers ...ssh.Signer) {
	for _, signer := range signers {
		if find(k.Signers, signer.PublicKey()) == nil {
			k.Signers = append(k.Signers, signer)
		}
	}
}

// find is the signer of a public key, or nil.
func find(signers []ssh.Signer, public ssh.PublicKey) ssh.Signer {
	for _, signer := range signers {
		if bytes.Equal(signer.PublicKey().Marshal(), public.Marshal()) {
			return signer
		}
	}
	return nil
}
