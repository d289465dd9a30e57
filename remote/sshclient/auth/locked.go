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

// unlocking is the signer of an encrypted key whose public half is known: the
// passphrase is asked for when a server has said that it takes the key, and once
// in this process. It is nil when nobody can be asked.
func (k *Keyring) unlocking(path string, public ssh.PublicKey, content []byte) ssh.Signer {
	if k.options.Prompt == nil || public == nil {
		return nil
	}
	return &lockedKey{path: path, public: public, open: sync.OnceValues(func() (ssh.AlgorithmSigner, error) {
		passphrase, err := k.options.Prompt(fmt.Sprintf("Passphrase for %s: ", path))
		if err != nil {
			return nil, fmt.Errorf("no passphrase for %s: %w", path, err)
		}
		signer, err := ssh.ParsePrivateKeyWithPassphrase(content, passphrase)
		clear(passphrase)
		if err != nil {
			return nil, fmt.Errorf("%s stays locked: %w", path, err)
		}
		opened, ok := signer.(ssh.AlgorithmSigner)
		if !ok {
			return nil, errors.New(path + ": a key of a kind that cannot sign here")
		}
		return opened, nil
	})}
}

type lockedKey struct {
	path   string
	public ssh.PublicKey
	open   func() (ssh.AlgorithmSigner, error)
}

func (l *lockedKey) PublicKey() ssh.PublicKey { return l.public }

func (l *lockedKey) Sign(rand io.Reader, data []byte) (*ssh.Signature, error) {
	return l.SignWithAlgorithm(rand, data, l.public.Type())
}

func (l *lockedKey) SignWithAlgorithm(rand io.Reader, data []byte, algorithm string) (*ssh.Signature, error) {
	signer, err := l.open()
	if err != nil {
		return nil, err
	}
	return signer.SignWithAlgorithm(rand, data, algorithm)
}
