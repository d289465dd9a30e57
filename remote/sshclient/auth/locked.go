package auth

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"golang.org/x/crypto/ssh"
)

func ownedByUs(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid()
}

// lockedSigner is the signer of an encrypted key with a known public key: it asks
// for the passphrase when a server has accepted the key, and only once in this
// process.
func (k *Keyring) lockedSigner(path string, public ssh.PublicKey, content []byte) ssh.Signer {
	return &lockedKey{public: public, done: k.lifetime.Done(), open: sync.OnceValue(func() *opened {
		result := &opened{known: make(chan struct{})}
		go func() { // reading from a terminal cannot be cancelled; Close does not wait for it
			defer close(result.known)
			if result.signer, result.err = k.ask(path, content); result.err != nil {
				k.log.Warn().Err(result.err).Msg("a key is not used")
			}
		}()
		return result
	})}
}

func (k *Keyring) ask(path string, content []byte) (ssh.AlgorithmSigner, error) {
	k.asking.Lock()
	passphrase, err := k.prompt(fmt.Sprintf("Passphrase for %s: ", path))
	k.asking.Unlock()
	k.answeredNow()
	if err != nil {
		return nil, fmt.Errorf("no passphrase for %s: %w", path, err)
	}
	signer, err := ssh.ParsePrivateKeyWithPassphrase(content, passphrase)
	clear(passphrase)
	if err != nil {
		return nil, fmt.Errorf("%s stays locked: %w", path, err)
	}
	able, ok := signer.(ssh.AlgorithmSigner)
	if !ok {
		return nil, errors.New(path + ": a key of a type that cannot sign here")
	}
	return able, nil
}

// opened is the result of asking for a passphrase.
type opened struct {
	known  chan struct{} // closed when the other fields may be read
	signer ssh.AlgorithmSigner
	err    error
}

type lockedKey struct {
	public ssh.PublicKey
	done   <-chan struct{}
	open   func() *opened // asks on the first call
}

func (l *lockedKey) PublicKey() ssh.PublicKey { return l.public }

func (l *lockedKey) Sign(rand io.Reader, data []byte) (*ssh.Signature, error) {
	return l.SignWithAlgorithm(rand, data, l.public.Type())
}

func (l *lockedKey) SignWithAlgorithm(rand io.Reader, data []byte, algorithm string) (*ssh.Signature, error) {
	result := l.open()
	select {
	case <-result.known:
		if result.err != nil {
			return nil, result.err
		}
		return result.signer.SignWithAlgorithm(rand, data, algorithm)
	case <-l.done:
		return nil, errors.New("the keyring was closed before the passphrase was entered")
	}
}
