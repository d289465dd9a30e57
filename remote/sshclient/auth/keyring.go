package auth

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote/sshclient/config"
)

// Keyring keeps the keys that were read, and what agents have. It is safe for concurrent use.
type Keyring struct {
	prompt   func(question string) ([]byte, error) // asks for a passphrase on a terminal; nil where there is none
	log      zerolog.Logger
	lifetime context.Context // ends with Close
	end      context.CancelFunc

	mu     sync.Mutex
	agents map[string]*keyAgent
	files  map[string]identity

	asking   sync.Mutex // one question at a time on a terminal
	answered atomic.Int64
}

// NewKeyring opens nothing yet. prompt is nil where there is no terminal: keys
// with a passphrase are then used through the agent or not at all.
func NewKeyring(prompt func(question string) ([]byte, error), log zerolog.Logger) *Keyring {
	k := &Keyring{prompt: prompt, log: log, agents: map[string]*keyAgent{}, files: map[string]identity{}}
	k.lifetime, k.end = context.WithCancel(context.Background())
	return k
}

// Close ends the requests to agents, and the signing that waits for a passphrase.
func (k *Keyring) Close() { k.end() }

// AnsweredSince reports whether, after start, the user was asked for a passphrase or by an agent, with or without an
// answer: a deadline that passed meanwhile was not the host's fault.
func (k *Keyring) AnsweredSince(start time.Time) bool {
	return k.answered.Load() > start.UnixNano()
}

func (k *Keyring) answeredNow() { k.answered.Store(time.Now().UnixNano()) }

// Keys are the keys to offer, in order, and notes for the administrator in case none is accepted.
type Keys struct {
	Signers []ssh.Signer
	Notes   []string
}

// Keys are those that ssh would offer and that can sign, in its order: the certificates of CertificateFile; the agent's
// keys that are configured too; the agent's others unless IdentitiesOnly; key files, each followed by the certificate
// next to it unless there is a CertificateFile.
func (k *Keyring) Keys(s config.HostConfig) Keys {
	var keys Keys
	inAgent, err := k.agentKeys(s.IdentityAgent)
	if err != nil {
		keys.Notes = append(keys.Notes, err.Error())
	}
	identities := k.identities(s)
	var configured, others, files []ssh.Signer
	for _, signer := range inAgent {
		if slices.ContainsFunc(identities, func(id identity) bool { return sameKey(id.public, signer.PublicKey()) }) {
			configured = append(configured, signer)
		} else if !s.IdentitiesOnly {
			others = append(others, signer)
		}
	}
	for _, id := range identities {
		if id.signer != nil {
			files = append(files, id.signer)
		}
	}
	private := slices.Concat(configured, others, files)
	for _, path := range s.CertificateFiles {
		keys.addCertificate(path, readPublic(path), private)
	}
	keys.add(configured...)
	keys.add(others...)
	for _, id := range identities {
		keys.addIdentity(id, private)
	}
	keys.restrict(s)
	return keys
}

func (k *Keys) add(signers ...ssh.Signer) {
	for _, signer := range signers {
		if find(k.Signers, signer.PublicKey()) == nil {
			k.Signers = append(k.Signers, signer)
		}
	}
}

// addIdentity adds a key file, or a note why it can't be used; private are all keys that may sign.
func (k *Keys) addIdentity(id identity, private []ssh.Signer) {
	switch certificate, ok := id.public.(*ssh.Certificate); {
	case ok:
		k.addCertificate(id.path, certificate, private)
	case id.signer != nil:
		k.add(id.signer)
	case id.problem != nil && find(private, id.public) == nil:
		k.Notes = append(k.Notes, id.problem.Error())
	}
}

// addCertificate adds the certificate of a file with the key that signs for it, or a note why it can't be used.
func (k *Keys) addCertificate(path string, public ssh.PublicKey, private []ssh.Signer) {
	certificate, ok := public.(*ssh.Certificate)
	if !ok || certificate.CertType != ssh.UserCert {
		k.Notes = append(k.Notes, path+" is not a user's certificate")
		return
	}
	if signer := find(private, certificate); signer != nil { // the agent has it
		k.add(signer)
		return
	}
	signer := find(private, certificate.Key)
	if signer == nil {
		k.Notes = append(k.Notes, "there is no private key for the certificate "+path)
		return
	}
	if signer, err := ssh.NewCertSigner(certificate, signer); err == nil { // it fits, as was just found
		k.add(signer)
	}
}

// find is the signer of a public key, or nil.
func find(signers []ssh.Signer, public ssh.PublicKey) ssh.Signer {
	for _, signer := range signers {
		if sameKey(public, signer.PublicKey()) {
			return signer
		}
	}
	return nil
}

// sameKey reports whether two keys, or certificates, are the same; nil is none.
func sameKey(a, b ssh.PublicKey) bool {
	return a != nil && b != nil && bytes.Equal(a.Marshal(), b.Marshal())
}
