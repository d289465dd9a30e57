package auth

import (
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote/sshclient/config"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

type identity struct {
	path    string
	public  ssh.PublicKey // nil if ssh doesn't know it before signing
	signer  ssh.Signer    // nil for certificates, and if only the agent can sign
	problem error         // why there is no signer
	stamp   string        // of the file as read
}

// identities are the existing key files, each followed by its certificate, for which ssh looks without a
// CertificateFile.
func (k *Keyring) identities(s config.HostConfig) (all []identity) {
	for _, path := range s.IdentityFiles {
		if file := k.file(path); file.public != nil || file.signer != nil || file.problem != nil {
			all = append(all, file.unasked(s.BatchMode))
		}
		if len(s.CertificateFiles) > 0 {
			continue
		}
		if certificate, ok := publicOf(path + "-cert").(*ssh.Certificate); ok {
			all = append(all, identity{path: path + "-cert.pub", public: certificate})
		}
	}
	return all
}

// Files lists the files of keys and certificates, including missing ones.
func Files(s config.HostConfig) []string {
	files := slices.Clone(s.CertificateFiles)
	for _, path := range s.IdentityFiles {
		files = append(files, path, path+".pub", path+"-cert.pub")
	}
	return files
}

func (id identity) unasked(batchMode bool) identity {
	if _, locked := id.signer.(*lockedKey); locked && batchMode {
		id.signer, id.problem = nil, fmt.Errorf("%s is locked with a passphrase, and BatchMode in ssh_config forbids "+
			"to ask for it: ssh-add it", id.path)
	}
	return id
}

func (k *Keyring) file(path string) identity {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return identity{path: path, public: readPublic(path + ".pub")} // the private key may be in the agent
	case err != nil:
		return identity{path: path, problem: err}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	file := identity{path: path, stamp: folder.Stamp(path)}
	if known := k.files[path]; known.stamp == file.stamp {
		return known
	}
	file.public = publicOf(path)
	file.signer, file.problem = k.read(path, file.public, info)
	k.files[path] = file
	return file
}

const maxKeyFile = 1 << 20 // bytes

// read returns a private key; nil for a public key's file.
func (k *Keyring) read(path string, public ssh.PublicKey, info fs.FileInfo) (ssh.Signer, error) {
	if !info.Mode().IsRegular() || info.Size() > maxKeyFile {
		return nil, fmt.Errorf("%s is not a key file", path)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if readPublic(path) != nil {
		return nil, nil // IdentityFile may name the public key of one in the agent
	}
	if info.Mode().Perm()&0o077 != 0 && (os.Getuid() != 0 || ownedByUs(info)) {
		return nil, fmt.Errorf("%s can be read by others and is not used: chmod 600 %s", path, path)
	}
	if public != nil && strings.HasPrefix(public.Type(), "sk-") {
		return nil, fmt.Errorf("%s is a FIDO key, which genv uses through an agent only: ssh-add %s", path, path)
	}
	signer, err := ssh.ParsePrivateKey(content)
	if err == nil {
		return signer, nil
	}
	if _, locked := errors.AsType[*ssh.PassphraseMissingError](err); !locked {
		return nil, fmt.Errorf("%s cannot be read here and is only used through the agent: %w", path, err)
	}
	if public == nil {
		return nil, fmt.Errorf("%s is locked with a passphrase and has no %s.pub next to it: ssh-add it", path, path)
	}
	if k.prompt == nil {
		return nil, fmt.Errorf("%s is locked with a passphrase: ssh-add it", path)
	}
	return k.lockedSigner(path, public, content), nil
}

// publicOf looks like ssh: in the file, in .pub, or ahead of the private key in OpenSSH's format.
func publicOf(path string) ssh.PublicKey {
	for _, file := range []string{path, path + ".pub"} {
		if public := readPublic(file); public != nil {
			return public
		}
	}
	return publicInPrivate(readKeyFile(path))
}

func readPublic(path string) ssh.PublicKey {
	public, _, _, _, _ := ssh.ParseAuthorizedKey(readKeyFile(path)) // nil after an error
	return public
}

func readKeyFile(path string) []byte {
	content, err := folder.ReadRegular(path, maxKeyFile)
	if err != nil {
		return nil
	}
	return content
}

// publicInPrivate is the public key ahead of a private one in OpenSSH's format, even with a passphrase (PROTOCOL.key).
func publicInPrivate(content []byte) ssh.PublicKey {
	const magic = "openssh-key-v1\x00"
	block, _ := pem.Decode(content)
	if block == nil || !strings.HasPrefix(string(block.Bytes), magic) {
		return nil
	}
	var head struct {
		Cipher, KDF, Options string
		Keys                 uint32
		Public               []byte
		Rest                 []byte `ssh:"rest"`
	}
	if err := ssh.Unmarshal(block.Bytes[len(magic):], &head); err != nil || head.Keys == 0 {
		return nil
	}
	public, err := ssh.ParsePublicKey(head.Public)
	if err != nil {
		return nil
	}
	return public
}

func ownedByUs(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid()
}

// lockedKey is an encrypted key with a known public key. It asks for the passphrase once, after a server accepted the
// key.
type lockedKey struct {
	public ssh.PublicKey
	done   <-chan struct{}                     // closed with the keyring
	ask    func() (ssh.AlgorithmSigner, error) // asks on the first call
}

func (k *Keyring) lockedSigner(path string, public ssh.PublicKey, content []byte) ssh.Signer {
	return &lockedKey{public, k.lifetime.Done(), sync.OnceValues(func() (ssh.AlgorithmSigner, error) {
		signer, err := k.ask(path, content)
		if err != nil {
			k.log.Warn().Err(err).Msg("a key is not used")
		}
		return signer, err
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

func (l *lockedKey) PublicKey() ssh.PublicKey { return l.public }

func (l *lockedKey) Sign(rand io.Reader, data []byte) (*ssh.Signature, error) {
	return l.SignWithAlgorithm(rand, data, l.public.Type())
}

func (l *lockedKey) SignWithAlgorithm(rand io.Reader, data []byte, algorithm string) (*ssh.Signature, error) {
	var signer ssh.AlgorithmSigner
	var err error
	known := make(chan struct{})
	go func() { // reading a terminal can't be cancelled; Close doesn't wait for it
		defer close(known)
		signer, err = l.ask()
	}()
	select {
	case <-known:
		if err != nil {
			return nil, err
		}
		return signer.SignWithAlgorithm(rand, data, algorithm)
	case <-l.done:
		return nil, errors.New("the keyring was closed before the passphrase was entered")
	}
}
