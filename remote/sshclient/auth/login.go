// Package auth finds a user's keys like ssh(1): the agent's, key files in OpenSSH's formats, and certificates, in ssh's
// order. It offers them until the server accepts one or hangs up.
//
// A private key with a passphrase is used through the agent, or after asking once; a FIDO key only through the agent.
//
//	keyring := auth.NewKeyring(nil, log)
//	defer keyring.Close()
//	login := keyring.Keys(hostConfig).Login()
//	config.AuthCallback = login.Next
package auth

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote/sshclient/config"
	"github.com/seed-3119e985/genv/remote/sshclient/hostkeys"
)

// ErrNoMoreKeys means that the server refused all keys.
var ErrNoMoreKeys = errors.New("no key was accepted")

// Login offers keys to one server, in order and in one goroutine.
type Login struct {
	offers []*offer
	keys   int // number of keys, which are the first offers
	next   int // first offer not made yet
	notes  []string

	allowed  []string // methods that the server last accepted
	unsigned bool     // the agent didn't sign with an accepted key
}

// NeedsOpenSSH says whether ssh(1) may succeed: the server wants more than a key or takes GSSAPI, or the agent only
// signs for ssh, as with keys restricted to destinations (ssh-add -h).
func (l *Login) NeedsOpenSSH() bool {
	return l.unsigned || slices.Contains(l.allowed, "gssapi-with-mic") ||
		l.allowed != nil && !slices.Contains(l.allowed, "publickey")
}

// Login begins a login with the keys.
func (k Keys) Login() *Login {
	l := &Login{notes: slices.Clone(k.Notes)}
	for _, signer := range k.Signers {
		if able, ok := signer.(ssh.AlgorithmSigner); ok {
			l.add(&offer{AlgorithmSigner: able, signatures: signatures(able)})
		} else {
			l.note(signer.PublicKey(), "cannot sign here")
		}
	}
	l.keys = len(l.offers)
	l.addExact()
	return l
}

// signatures are a key's algorithms, the preferred first: RSA keys have several.
func signatures(signer ssh.AlgorithmSigner) []string {
	if several, ok := signer.(ssh.MultiAlgorithmSigner); ok {
		return several.Algorithms()
	}
	return []string{hostkeys.Plain(signer.PublicKey()).Type()}
}

// addExact repeats RSA keys, with one algorithm each: a server need not accept all that it knows (sshd_config(5),
// PubkeyAcceptedAlgorithms), nor say what it knows (RFC 8308). The one most likely tried is last.
func (l *Login) addExact() {
	for _, rank := range []int{1, 2, 0} {
		for _, o := range l.offers[:l.keys] {
			if hostkeys.Plain(o.AlgorithmSigner.PublicKey()).Type() == ssh.KeyAlgoRSA && rank < len(o.signatures) {
				l.add(&offer{AlgorithmSigner: o.AlgorithmSigner, signatures: o.signatures[rank : rank+1], exact: true})
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

// Next is the ssh.ClientAuthCallback. After a key that can't sign, the next attempt continues.
func (l *Login) Next(now *ssh.ClientAuthContext) (ssh.AuthMethod, error) {
	l.allowed = now.AllowedMethods
	if !slices.Contains(now.AllowedMethods, "publickey") {
		return nil, fmt.Errorf("%w: the server does not accept keys now, but %q", ErrNoMoreKeys, now.AllowedMethods)
	}
	if l.next == len(l.offers) {
		return nil, ErrNoMoreKeys
	}
	var batch []ssh.Signer
	for _, o := range l.offers[l.next:] {
		batch = append(batch, o)
		if len(o.signatures) > 1 {
			break // x/crypto ends the attempt if the server knows none of the key's algorithms
		}
	}
	return ssh.PublicKeys(batch...), nil
}

// Offered counts the keys that were offered.
func (l *Login) Offered() int { return min(l.next, l.keys) }

const maxNamed = 10 // keys in Tried

// Tried describes the offered keys and the notes in a line.
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

// Expired names offered certificates that aren't valid now.
func (l *Login) Expired(now time.Time) string {
	var all []string
	for _, o := range l.offers[:l.Offered()] {
		certificate, ok := o.AlgorithmSigner.PublicKey().(*ssh.Certificate)
		//nolint:gosec // bounded
		at := func(seconds uint64) string { return time.Unix(int64(seconds), 0).Format(time.RFC3339) }
		switch seconds := uint64(now.Unix()); { //nolint:gosec // after 1970
		case !ok:
		case seconds >= certificate.ValidBefore:
			all = append(all, describe(certificate)+" expired at "+at(certificate.ValidBefore))
		case seconds < certificate.ValidAfter && certificate.ValidAfter <= math.MaxInt64:
			all = append(all, describe(certificate)+" is not valid before "+at(certificate.ValidAfter))
		}
	}
	return strings.Join(all, ", ")
}

// describe formats a key like `ssh-add -l`.
func describe(key ssh.PublicKey) string {
	return key.Type() + " " + hostkeys.Fingerprint(key)
}

type offer struct {
	ssh.AlgorithmSigner
	login      *Login
	index      int
	signatures []string
	exact      bool // with this algorithm, whatever the server claims to know
}

// Algorithms makes an offer an ssh.MultiAlgorithmSigner.
func (o *offer) Algorithms() []string { return o.signatures }

// PublicKey is called at the key's turn.
func (o *offer) PublicKey() ssh.PublicKey {
	o.login.next = max(o.login.next, o.index+1)
	key := o.AlgorithmSigner.PublicKey()
	if !o.exact {
		return key
	}
	name := o.signatures[0]
	if _, ok := key.(*ssh.Certificate); ok {
		name += "-cert-v01@openssh.com"
	}
	return namedKey{key, name}
}

func (o *offer) SignWithAlgorithm(rand io.Reader, data []byte, algorithm string) (*ssh.Signature, error) {
	signature, err := o.AlgorithmSigner.SignWithAlgorithm(rand, data, algorithm)
	if err != nil {
		o.login.unsigned = true
		o.login.note(o.AlgorithmSigner.PublicKey(), "was accepted but cannot sign: "+err.Error()+" (the agent signs "+
			"for ssh alone if the key is restricted to destinations, ssh-add -h)")
	}
	return signature, err
}

// namedKey's type is an algorithm, which x/crypto offers.
type namedKey struct {
	ssh.PublicKey
	name string
}

func (k namedKey) Type() string { return k.name }

// restrict applies ssh_config (PubkeyAcceptedAlgorithms, RequiredRSASize) to keys, and RSA keys' signatures.
func (k *Keys) restrict(s config.HostConfig) {
	var accepted []ssh.Signer
	for _, signer := range k.Signers {
		limited, err := restricted(signer, s)
		if err != nil {
			k.Notes = append(k.Notes, fmt.Sprintf("%s is not offered: %v", ssh.FingerprintSHA256(signer.PublicKey()),
				err))
			continue
		}
		accepted = append(accepted, limited)
	}
	k.Signers = accepted
}

func restricted(signer ssh.Signer, s config.HostConfig) (ssh.Signer, error) {
	key := signer.PublicKey()
	if err := s.CheckSize(key); err != nil {
		return nil, err
	}
	names := s.SignatureAlgorithms(key)
	able, ok := signer.(ssh.AlgorithmSigner)
	switch {
	case len(names) == 0:
		return nil, fmt.Errorf("PubkeyAcceptedAlgorithms in ssh_config allows no signature of its type, %s", key.Type())
	case !ok || !strings.HasPrefix(key.Type(), ssh.KeyAlgoRSA):
		return signer, nil // it has one algorithm
	}
	for i, name := range names { // here the library uses no certificate names
		names[i] = strings.TrimSuffix(name, "-cert-v01@openssh.com")
	}
	return ssh.NewSignerWithAlgorithms(able, names)
}
