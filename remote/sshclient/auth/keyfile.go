package auth

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote/sshclient/config"
)

// identity is a configured key with its certificates.
type identity struct {
	*keyFile
	certificates []*ssh.Certificate
}

// with are the identity's signers if signer has the private key: one for each
// certificate, then the key itself; none without a signer.
func (id identity) with(signer ssh.Signer) []ssh.Signer {
	if signer == nil {
		return nil
	}
	var signers []ssh.Signer
	for _, certificate := range id.certificates {
		if s, err := ssh.NewCertSigner(certificate, signer); err == nil { // it was matched before
			signers = append(signers, s)
		}
	}
	return append(signers, signer)
}

// identities are the key files that exist, in their order, with their
// certificates, and notes on those that can't be used.
func (k *Keyring) identities(s config.HostConfig) ([]identity, []string) {
	var all []identity
	var notes []string
	for _, path := range s.IdentityFiles {
		file, err := k.file(path)
		if err != nil {
			notes = append(notes, err.Error())
		}
		if file == nil || file.public == nil {
			continue
		}
		id := identity{keyFile: file}
		for _, certificate := range append([]string{path + "-cert.pub"}, s.CertificateFiles...) {
			if c, ok := readPublic(certificate).(*ssh.Certificate); ok && string(c.Key.Marshal()) == string(id.public.Marshal()) {
				id.certificates = append(id.certificates, c)
			}
		}
		all = append(all, id)
	}
	return all, notes
}

// keyFile is the cached content of a file that has not changed since.
type keyFile struct {
	public  ssh.PublicKey // nil if it can't be read
	signer  ssh.Signer    // nil when only the agent can sign
	problem error
	changed time.Time
	size    int64
}

func (k *Keyring) file(path string) (*keyFile, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &keyFile{public: readPublic(path + ".pub")}, nil // the private key may be in the agent
	}
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if file := k.files[path]; file != nil && file.changed.Equal(info.ModTime()) && file.size == info.Size() {
		return file, file.problem
	}
	file := &keyFile{changed: info.ModTime(), size: info.Size()}
	file.public, file.signer, file.problem = k.read(path, info)
	k.files[path] = file
	return file, file.problem
}

// maxKeyFile is far more than the size of any key, in bytes.
const maxKeyFile = 1 << 20

func (k *Keyring) read(path string, info fs.FileInfo) (ssh.PublicKey, ssh.Signer, error) {
	if !info.Mode().IsRegular() || info.Size() > maxKeyFile {
		return nil, nil, fmt.Errorf("%s is not a key file", path)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	if public, _, _, _, err := ssh.ParseAuthorizedKey(content); err == nil {
		return public, nil, nil // IdentityFile names the public key of one in the agent
	}
	if info.Mode().Perm()&0o077 != 0 && (os.Getuid() != 0 || ownedByUs(info)) {
		return readPublic(path + ".pub"), nil, fmt.Errorf("%s can be read by others and is not used: chmod 600 %s", path, path)
	}
	signer, err := ssh.ParsePrivateKey(content)
	if err == nil {
		return signer.PublicKey(), signer, nil
	}
	var locked *ssh.PassphraseMissingError
	public := readPublic(path + ".pub")
	if !errors.As(err, &locked) {
		return public, nil, fmt.Errorf("%s cannot be read here and is only used through the agent: %w", path, err)
	}
	if locked.PublicKey != nil {
		public = locked.PublicKey
	}
	signer = k.lockedSigner(path, public, content)
	switch {
	case public == nil:
		err = fmt.Errorf("%s is locked with a passphrase and has no %s.pub next to it: ssh-add it", path, path)
	case signer == nil:
		err = fmt.Errorf("%s is locked with a passphrase: ssh-add it", path)
	default:
		err = nil
	}
	return public, signer, err
}

func readPublic(path string) ssh.PublicKey {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	public, _, _, _, err := ssh.ParseAuthorizedKey(content)
	if err != nil {
		return nil
	}
	return public
}
