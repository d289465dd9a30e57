package auth

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// ErrNoMoreKeys ends a login when the server has refused all keys.
var ErrNoMoreKeys = errors.New("no key was accepted")

// Login offers keys to one server, in order, until it accepts one or ends the
// connection. It is used for one login, by one goroutine.
type Login struct {
	offers []*offer
	keys   int // the offers that come first, one for each key
	next   int // the first offer that was not made
	notes  []string
}

// Login begins a login with the keys. accepted are the algorithms of ssh_config's
// PubkeyAcceptedAlgorithms, nil for the default: keys and signatures of others are
// not used.
func (k Keys) Login(accepted []string) *Login {
	l := &Login{notes: slices.Clone(k.Notes)}
	for _, signer := range k.Signers {
		able, ok := signer.(ssh.AlgorithmSigner)
		names := allowedFor(signer.PublicKey(), accepted)
		switch {
		case !ok:
			l.note(signer.PublicKey(), "cannot sign here")
		case len(names) == 0:
			l.note(signer.PublicKey(), "is left out by PubkeyAcceptedAlgorithms")
		default:
			l.add(&offer{AlgorithmSigner: able, names: names})
		}
	}
	l.keys = len(l.offers)
	l.addExact()
	return l
}

// addExact adds RSA keys again, after all others, with each algorithm by name: a
// server need not accept all that it says it knows (PubkeyAcceptedAlgorithms of
// sshd_config(5)), and need not say what it knows (RFC 8308). The algorithm that was
// probably used before comes last.
func (l *Login) addExact() {
	for _, rank := range []int{1, 2, 0} {
		for _, o := range l.offers[:l.keys] {
			if isRSA(o.AlgorithmSigner.PublicKey()) && rank < len(o.names) {
				l.add(&offer{AlgorithmSigner: o.AlgorithmSigner, names: o.names[rank : rank+1], exact: true})
			}
		}
	}
}

func (l *Login) add(o *offer) {
	o.login, o.index = l, len(l.offers)
	l.offers = append(l.offers, o)
}

func (l *Login) note(key ssh.PublicKey, what string) {
	l.notes = append(l.notes, describe(key)+" "+what)
}

// Next is the ssh.ClientAuthCallback of the login. A key that can't sign, since it
// is locked or the agent refuses, ends an attempt; the next one continues after it.
func (l *Login) Next(now *ssh.ClientAuthContext) (ssh.AuthMethod, error) {
	if !slices.Contains(now.AllowedMethods, "publickey") {
		return nil, fmt.Errorf("%w: the server does not accept keys now, but %q", ErrNoMoreKeys, now.AllowedMethods)
	}
	if l.next == len(l.offers) {
		return nil, ErrNoMoreKeys
	}
	var batch []ssh.Signer
	for _, o := range l.offers[l.next:] {
		batch = append(batch, o)
		if len(o.names) > 1 {
			break // x/crypto ends the attempt if the server knows no algorithm of the key
		}
	}
	return ssh.PublicKeys(batch...), nil
}

// Offered is how many keys were offered so far.
func (l *Login) Offered() int { return min(l.next, l.keys) }

// maxNamed is how many keys Tried names.
const maxNamed = 10

// Tried describes the keys that were offered, and the notes, in one line, for an
// error.
func (l *Login) Tried() string {
	var names []string
	for _, o := range l.offers[:min(l.Offered(), maxNamed)] {
		names = append(names, describe(o.AlgorithmSigner.PublicKey()))
	}
	if more := l.Offered() - maxNamed; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	tried := "there is no key to offer"
	if len(names) > 0 {
		tried = "tried " + strings.Join(names, ", ")
	}
	return strings.Join(append([]string{tried}, l.notes...), "; ")
}

// describe is a key as `ssh-add -l` shows it.
func describe(key ssh.PublicKey) string {
	return key.Type() + " " + ssh.FingerprintSHA256(plain(key))
}

// plain is the key itself, of a certificate the one that it is for.
func plain(key ssh.PublicKey) ssh.PublicKey {
	if certificate, ok := key.(*ssh.Certificate); ok {
		return certificate.Key
	}
	return key
}

func isRSA(key ssh.PublicKey) bool { return plain(key).Type() == ssh.KeyAlgoRSA }

// allowedFor are the algorithms that a key may be offered with, as ssh_config names
// them, the preferred one first. SHA-1 has to be asked for (ssh-rsa).
func allowedFor(key ssh.PublicKey, accepted []string) []string {
	possible := []string{key.Type()}
	switch key.Type() {
	case ssh.KeyAlgoRSA:
		possible = []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256, ssh.KeyAlgoRSA}
	case ssh.CertAlgoRSAv01:
		possible = []string{ssh.CertAlgoRSASHA512v01, ssh.CertAlgoRSASHA256v01, ssh.CertAlgoRSAv01}
	}
	if accepted == nil {
		return possible[:min(2, len(possible))]
	}
	var allowed []string
	for _, name := range accepted {
		if slices.Contains(possible, name) {
			allowed = append(allowed, name)
		}
	}
	return allowed
}

// signatureOf is the algorithm of the signature that is made under a name.
func signatureOf(name string, key ssh.PublicKey) string {
	switch name {
	case ssh.KeyAlgoRSASHA512, ssh.CertAlgoRSASHA512v01:
		return ssh.KeyAlgoRSASHA512
	case ssh.KeyAlgoRSASHA256, ssh.CertAlgoRSASHA256v01:
		return ssh.KeyAlgoRSASHA256
	}
	return plain(key).Type()
}

// offer is a key that is offered under one of some names.
type offer struct {
	ssh.AlgorithmSigner
	login *Login
	index int
	names []string
	exact bool // under the name, whatever the server says that it knows
}

// Algorithms makes an offer an ssh.MultiAlgorithmSigner.
func (o *offer) Algorithms() (signatures []string) {
	for _, name := range o.names {
		signatures = append(signatures, signatureOf(name, o.AlgorithmSigner.PublicKey()))
	}
	return signatures
}

// PublicKey is called when the key's turn has come.
func (o *offer) PublicKey() ssh.PublicKey {
	o.login.next = max(o.login.next, o.index+1)
	if o.exact {
		return namedKey{o.AlgorithmSigner.PublicKey(), o.names[0]}
	}
	return o.AlgorithmSigner.PublicKey()
}

func (o *offer) SignWithAlgorithm(rand io.Reader, data []byte, algorithm string) (*ssh.Signature, error) {
	signature, err := o.AlgorithmSigner.SignWithAlgorithm(rand, data, algorithm)
	if err != nil {
		o.login.note(o.AlgorithmSigner.PublicKey(), "was accepted but cannot sign: "+err.Error())
	}
	return signature, err
}

// namedKey is a key with the name of an algorithm as its type: x/crypto offers it
// under that one.
type namedKey struct {
	ssh.PublicKey
	name string
}

func (k namedKey) Type() string { return k.name }
