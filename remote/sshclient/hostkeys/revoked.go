package hostkeys

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
)

// revocations are the content of a RevokedHostKeys file at a point in time.
type revocations struct {
	path, stamp string
	listed      map[string]int // line by key; nil for a KRL

	mu    sync.Mutex
	asked map[[sha256.Size]byte]bool // whether a KRL revokes a key, by its hash: a host may show another long certificate each time
}

// krlMagic begins a binary key revocation list (PROTOCOL.krl of OpenSSH).
var krlMagic = []byte("SSHKRL\n\x00")

// CheckRevoked returns *Changed for a key, or a certificate with a key or an
// authority, that RevokedHostKeys revokes. While a file can't be read, it returns
// an error for every key, as ssh does. Binary lists are read by ssh-keygen.
func (s *Store) CheckRevoked(ctx context.Context, files []string, name Name, key ssh.PublicKey, rules Rules) error {
	for _, path := range files {
		r, err := s.loadRevoked(path)
		if err != nil {
			return fmt.Errorf("RevokedHostKeys: %w; no host is trusted until it can be read", err)
		}
		line, found := r.find(key)
		if r.listed == nil {
			if found, err = s.askKRL(ctx, r, key); err != nil {
				return fmt.Errorf("RevokedHostKeys %s: %w; no host is trusted until it can be read", path, err)
			}
		}
		if found {
			return &Changed{Name: name.String(), Key: Plain(key), Known: []Place{{path, line}}, Revoked: true, md5: rules.MD5}
		}
	}
	return nil
}

func (s *Store) loadRevoked(path string) (*revocations, error) {
	stamp := stampOf(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.revoked[path]; r != nil && r.stamp == stamp {
		return r, nil
	}
	content, err := readFile(path)
	if err != nil {
		return nil, err
	}
	r := &revocations{path: path, stamp: stamp, asked: map[[sha256.Size]byte]bool{}}
	if !bytes.HasPrefix(content, krlMagic) {
		if r.listed, err = parseRevoked(content); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	s.revoked[path] = r
	return r, nil
}

// parseRevoked reads a list of public keys, one in a line. A line that can't be
// read is an error: it may revoke the key in question.
func parseRevoked(content []byte) (map[string]int, error) {
	listed, number := map[string]int{}, 0
	for line := range bytes.Lines(content) {
		number++
		fields := bytes.Fields(line)
		if len(fields) == 0 || fields[0][0] == '#' {
			continue
		}
		var key ssh.PublicKey
		blob, err := base64.StdEncoding.DecodeString(string(fields[min(1, len(fields)-1)]))
		if err == nil {
			key, err = ssh.ParsePublicKey(blob)
		}
		if err == nil && key.Type() != string(fields[0]) {
			err = fmt.Errorf("the key is of type %s", key.Type())
		}
		if err != nil {
			return nil, fmt.Errorf("line %d is not a public key: %w", number, err)
		}
		listed[string(Plain(key).Marshal())] = number
	}
	return listed, nil
}

// find looks a key up in a list.
func (r *revocations) find(key ssh.PublicKey) (line int, found bool) {
	if line, found = r.listed[string(Plain(key).Marshal())]; found {
		return line, true
	}
	if cert, ok := key.(*ssh.Certificate); ok {
		line, found = r.listed[string(cert.SignatureKey.Marshal())]
	}
	return line, found
}

// askKRL runs ssh-keygen, once for each key.
func (s *Store) askKRL(ctx context.Context, r *revocations, key ssh.PublicKey) (bool, error) {
	hash := sha256.Sum256(key.Marshal())
	r.mu.Lock()
	known, ok := r.asked[hash]
	r.mu.Unlock()
	if ok {
		return known, nil
	}
	keygen := exec.CommandContext(ctx, "ssh-keygen", "-Q", "-f", r.path, "/dev/stdin")
	keygen.Stdin = bytes.NewReader(ssh.MarshalAuthorizedKey(key))
	out, err := s.output(ctx, keygen)
	var exit *exec.ExitError
	is := errors.As(err, &exit) && exit.ExitCode() == 1 && strings.HasSuffix(strings.TrimSpace(string(out)), "REVOKED")
	if err != nil && !is {
		return false, fmt.Errorf("ssh-keygen, which reads binary lists: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[hash] = is
	return is, nil
}
