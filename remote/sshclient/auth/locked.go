package auth

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
)

func ownedByUs(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid()
}

// unlocking is the signer of an encrypted key whose public half is known: the
// passphrase is asked for when a server has said that it takes the key, and once
// in this process. It is nil when nobody can be asked.
func (k *Keyring) unlocking(path string, public ssh.PublicKey, content []byte) ssh.Signer {
	if k.options.Prompt == nil || public == nil {
		return nil
	}
	return &lockedKey{public: public, closed: k.closed, open: sync.OnceValue(func() *opened {
		result := &opened{known: make(chan struct{})}
		go func() { // a terminal's answer cannot be called off; Close does not wait for it
			defer close(result.known)
			if result.signer, result.err = k.ask(path, content); result.err != nil {
				k.options.Log.Warn().Err(result.err).Msg("a key is left out")
			}
		}()
		return result
	})}
}

func (k *Keyring) ask(path string, content []byte) (ssh.AlgorithmSigner, error) {
	k.asking.Lock()
	passphrase, err := k.options.Prompt(fmt.Sprintf("Passphrase for %s: ", path))
	k.asking.Unlock()
	k.answered.Store(time.Now().UnixNano())
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
		return nil, errors.New(path + ": a key of a kind that cannot sign here")
	}
	return able, nil
}

// opened is what came of asking for a passphrase.
type opened struct {
	known  chan struct{} // closed when the rest may be read
	signer ssh.AlgorithmSigner
	err    error
}

type lockedKey struct {
	public ssh.PublicKey
	closed <-chan struct{}
	open   func() *opened // begins with the first call
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
	case <-l.closed:
		return nil, errors.New("nobody waits for the passphrase any more")
	}
}
