package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

const (
	agentTimeout = 10 * time.Second // of a request: an agent may ask its user to confirm, or to touch a FIDO key
	askedUser    = time.Second      // an agent that takes so long has asked its user
	listTTL      = 5 * time.Second  // a hundred hosts that are dialled at the same time need the list once
	silentTTL    = time.Minute      // a key for which the user gave no answer is not used for so long
	// agentRequests is how many requests an agent gets at a time: the queue of an ssh-agent has 128 places.
	agentRequests = 16
)

// keyAgent is an ssh-agent. Every request has a connection of its own, so that no late answer is taken for another.
type keyAgent struct {
	path     string
	keyring  *Keyring
	requests chan struct{}

	listing sync.Mutex // held during a request
	keys    []ssh.Signer
	listed  time.Time
	failed  error

	mu     sync.Mutex
	silent map[string]time.Time // when there was no answer for a key, by its blob
}

// agentKeys are the keys of the agent in its order; nil without an agent.
func (k *Keyring) agentKeys(path string) ([]ssh.Signer, error) {
	if path == "" {
		return nil, nil
	}
	k.mu.Lock()
	a := k.agents[path]
	if a == nil {
		a = &keyAgent{
			path: path, keyring: k, requests: make(chan struct{}, agentRequests),
			silent: map[string]time.Time{},
		}
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
				public = key // of a type that is unknown here
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
	stop := context.AfterFunc(a.keyring.lifetime, func() { _ = conn.Close() }) // which ends the request
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(agentTimeout)); err != nil {
		return fmt.Errorf("the agent does not answer: %w", err)
	}
	// Without a Close method, so that the client starts no goroutine.
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
	if k.agent.isSilent(k.public) {
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
		k.agent.noteSilent(k.public)
		return nil, errSilent
	}
	return signature, err
}

func (a *keyAgent) isSilent(key ssh.PublicKey) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	since, ok := a.silent[string(key.Marshal())]
	return ok && time.Since(since) < silentTTL
}

func (a *keyAgent) noteSilent(key ssh.PublicKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.silent[string(key.Marshal())] = time.Now()
}

var (
	errClosed = errors.New("the keyring is closed")
	errSilent = fmt.Errorf("the agent gave no signature within %s (does it wait for a touch or a confirmation?)",
		agentTimeout)
)
