package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/seed-3119e985/genv/remote/sshclient/config"
)

// Keyring has keys from files and agents, safely for concurrent use.
type Keyring struct {
	prompt   func(question string) ([]byte, error) // for a passphrase; nil without a terminal
	log      zerolog.Logger
	lifetime context.Context // ends with Close
	end      context.CancelFunc

	mu     sync.Mutex
	agents map[string]*keyAgent
	files  map[string]identity

	asking   sync.Mutex // one question at a time
	answered atomic.Int64
}

// NewKeyring opens nothing yet. Without prompt, locked keys only work through the agent.
func NewKeyring(prompt func(question string) ([]byte, error), log zerolog.Logger) *Keyring {
	k := &Keyring{prompt: prompt, log: log, agents: map[string]*keyAgent{}, files: map[string]identity{}}
	k.lifetime, k.end = context.WithCancel(context.Background())
	return k
}

// Close ends requests to agents, and waiting for a passphrase.
func (k *Keyring) Close() { k.end() }

// AnsweredSince says whether the user, since start, was asked for a passphrase or by an agent: a late login isn't the
// host's fault.
func (k *Keyring) AnsweredSince(start time.Time) bool {
	return k.answered.Load() > start.UnixNano()
}

func (k *Keyring) answeredNow() { k.answered.Store(time.Now().UnixNano()) }

// Keys to offer, in order, and notes for the administrator if none is accepted.
type Keys struct {
	Signers []ssh.Signer
	Notes   []string
}

// Keys are those that ssh would offer and that can sign, in its order: certificates of CertificateFile; configured keys
// in the agent; its others unless IdentitiesOnly; key files, each followed by its certificate unless there is a
// CertificateFile.
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

// private has all keys that can sign.
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
	if signer, err := ssh.NewCertSigner(certificate, signer); err == nil { // can't fail
		k.add(signer)
	}
}

func find(signers []ssh.Signer, public ssh.PublicKey) ssh.Signer {
	for _, signer := range signers {
		if sameKey(public, signer.PublicKey()) {
			return signer
		}
	}
	return nil
}

// sameKey compares keys or certificates; nil equals none.
func sameKey(a, b ssh.PublicKey) bool {
	return a != nil && b != nil && bytes.Equal(a.Marshal(), b.Marshal())
}

const (
	agentTimeout  = 10 * time.Second // per request: the agent may wait for a confirmation or the touch of a FIDO key
	askedUser     = time.Second      // slower requests mean that the agent asked its user
	listTTL       = 5 * time.Second  // lets hundreds of concurrent hosts share a list
	silentTTL     = time.Minute      // a key that the user didn't confirm isn't used this long
	agentRequests = 16               // concurrent, per agent: its queue has 128 places
)

// keyAgent is an ssh-agent, with a connection per request, so that a late answer can't be taken for another.
type keyAgent struct {
	path     string
	keyring  *Keyring
	requests chan struct{}

	listing sync.Mutex // held during a request
	keys    []ssh.Signer
	listed  time.Time
	failed  error

	silent sync.Map // of time.Time, by key blob: when there was no answer
}

func (k *Keyring) agentKeys(path string) ([]ssh.Signer, error) {
	if path == "" {
		return nil, nil
	}
	k.mu.Lock()
	a := k.agents[path]
	if a == nil {
		a = &keyAgent{path: path, keyring: k, requests: make(chan struct{}, agentRequests)}
		k.agents[path] = a
	}
	k.mu.Unlock()
	return a.list()
}

func (a *keyAgent) list() ([]ssh.Signer, error) {
	a.listing.Lock()
	defer a.listing.Unlock()
	if !a.listed.IsZero() && time.Since(a.listed) < listTTL {
		return a.keys, a.failed
	}
	a.keys = nil
	a.failed = a.ask(func(client agent.ExtendedAgent) error {
		keys, err := client.List()
		if err != nil {
			return fmt.Errorf("the agent at %s does not list its keys: %w", a.path, err)
		}
		for _, key := range keys {
			public, err := ssh.ParsePublicKey(key.Blob)
			if err != nil {
				public = key // an unsupported type
			}
			a.keys = append(a.keys, &agentKey{agent: a, public: public})
		}
		return nil
	})
	a.listed = time.Now()
	return a.keys, a.failed
}

func (a *keyAgent) ask(request func(agent.ExtendedAgent) error) error {
	select {
	case a.requests <- struct{}{}:
		defer func() { <-a.requests }()
	case <-a.keyring.lifetime.Done():
		return errClosed
	}
	conn, err := net.DialTimeout("unix", a.path, agentTimeout)
	if err != nil {
		return fmt.Errorf("the agent does not answer: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(a.keyring.lifetime, func() { _ = conn.Close() }) // ends the request
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(agentTimeout)); err != nil {
		return fmt.Errorf("the agent does not answer: %w", err)
	}
	// Hiding Close keeps the client from starting a goroutine.
	return request(agent.NewClient(struct{ io.ReadWriter }{conn}))
}

type agentKey struct {
	agent  *keyAgent
	public ssh.PublicKey
}

func (k *agentKey) PublicKey() ssh.PublicKey { return k.public }

func (k *agentKey) Sign(rand io.Reader, data []byte) (*ssh.Signature, error) {
	return k.SignWithAlgorithm(rand, data, "")
}

func (k *agentKey) SignWithAlgorithm(_ io.Reader, data []byte, algorithm string) (signature *ssh.Signature, err error) {
	blob := string(k.public.Marshal())
	if since, ok := k.agent.silent.Load(blob); ok && time.Since(since.(time.Time)) < silentTTL {
		return nil, errSilent
	}
	var flags agent.SignatureFlags
	switch algorithm {
	case ssh.KeyAlgoRSASHA256:
		flags = agent.SignatureFlagRsaSha256
	case ssh.KeyAlgoRSASHA512:
		flags = agent.SignatureFlagRsaSha512
	}
	begun := time.Now()
	var late bool
	err = k.agent.ask(func(client agent.ExtendedAgent) error {
		asked := time.Now()
		signature, err = client.SignWithFlags(k.public, data, flags)
		late = err != nil && time.Since(asked) >= agentTimeout
		return err
	})
	if time.Since(begun) >= askedUser {
		k.agent.keyring.answeredNow()
	}
	if late {
		k.agent.silent.Store(blob, time.Now())
		return nil, errSilent
	}
	return signature, err
}

var (
	errClosed = errors.New("the keyring is closed")
	errSilent = fmt.Errorf("the agent gave no signature within %s (does it wait for a touch or a confirmation?)",
		agentTimeout)
)
