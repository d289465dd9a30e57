package hostkeys

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"
	"golang.org/x/sys/unix"
)

// Accept adds the key of an unknown host to the first of the files, for
// StrictHostKeyChecking accept-new; with hash, the name is hashed. Programs that
// append at the same time, such as OpenSSH, each write a whole line.
func (s *Store) Accept(files []string, hash bool, address string, key ssh.PublicKey) error {
	if len(files) == 0 {
		return errors.New("there is no user known_hosts file to add the key to")
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	db, err := s.Load(files...) // another connection may have added the key
	if err != nil {
		return err
	}
	var unknown *Unknown
	if err := db.Check(address, key); !errors.As(err, &unknown) {
		return err
	}
	name := knownhosts.Normalize(address)
	line := knownhosts.Line([]string{address}, key)
	if hash {
		line = xknownhosts.HashHostname(name) + line[len(name):]
	}
	if err := appendLine(files[0], line); err != nil {
		return fmt.Errorf("cannot add the key of %s: %w", name, err)
	}
	s.log.Warn().Str("file", files[0]).Str("host", name).Str("fingerprint", ssh.FingerprintSHA256(key)).
		Msg("known_hosts: the key of a new host was added (accept-new)")
	return nil
}

// appendLine writes a line with one call, under a lock, after ending a cut last
// line.
func appendLine(name, line string) (err error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(name, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", name, err)
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	last := []byte("\n")
	if info.Size() > 0 {
		if _, err := file.ReadAt(last, info.Size()-1); err != nil {
			return err
		}
	}
	if last[0] != '\n' {
		line = "\n" + line
	}
	_, err = file.WriteString(line + "\n")
	return err
}
