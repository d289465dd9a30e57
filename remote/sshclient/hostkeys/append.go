package hostkeys

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
	"golang.org/x/sys/unix"
)

// Accept adds the key of an unknown host to known_hosts, for StrictHostKeyChecking
// accept-new; of a certificate, the key in it. Programs that append at the same
// time, such as OpenSSH, each write a whole line. No key is added while one of the
// host's files can't be read, since the host may be known there.
func (s *Store) Accept(h *Host, key ssh.PublicKey, rules Rules, now time.Time) error {
	if rules.AddTo == "" {
		return errors.New("there is no user known_hosts file to add the key to")
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	h = s.Lookup(h.paths, h.name) // another connection may have added the key
	if err := errors.Join(h.missing...); err != nil {
		return err
	}
	var unknown *Unknown
	if err := h.Check(key, rules, now); !errors.As(err, &unknown) {
		return err
	}
	known := h.name.String()
	if rules.Hash {
		known = knownhosts.HashHostname(known)
	}
	if err := appendLine(rules.AddTo, known+" "+string(ssh.MarshalAuthorizedKey(Plain(key)))); err != nil {
		return fmt.Errorf("cannot add the key of %s: %w", h.name, err)
	}
	s.log.Warn().Str("file", rules.AddTo).Str("host", h.name.String()).Str("fingerprint", Fingerprint(key, rules.MD5)).
		Msg("known_hosts: the key of a new host was added (accept-new)")
	return nil
}

// appendLine writes a line, with its newline, with one call, under a lock, after ending a cut last
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
	_, err = file.WriteString(line)
	return err
}
