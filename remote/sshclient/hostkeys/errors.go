package hostkeys

import (
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Unknown is the error for a host without a known key.
type Unknown struct {
	Name string // as in known_hosts
	Key  ssh.PublicKey
	md5  bool
	also error // what could not be read, and why a certificate was not accepted
	// Refused says that a known authority signed its certificate, which was not accepted.
	Refused bool
}

func (e *Unknown) Error() string {
	text := fmt.Sprintf("no key of %s is known; it shows a %s key with fingerprint %s", e.Name, e.Key.Type(), Fingerprint(e.Key, e.md5))
	if e.also != nil {
		text += " (" + strings.ReplaceAll(e.also.Error(), "\n", "; ") + ")"
	}
	return text
}

// Changed is the error for a host with a key that differs from the known ones, or
// that is revoked.
type Changed struct {
	Name    string
	Key     ssh.PublicKey
	Known   []Place // the lines with other keys, or the one that revokes this key
	Revoked bool
	md5     bool
}

func (e *Changed) Error() string {
	shown := fmt.Sprintf("%s with fingerprint %s", e.Key.Type(), Fingerprint(e.Key, e.md5))
	if e.Revoked {
		return fmt.Sprintf("THE KEY OF %s IS REVOKED at %s: %s", e.Name, e.Known[0], shown)
	}
	return fmt.Sprintf("THE KEY OF %s HAS CHANGED: it shows %s, but %s has another key", e.Name, shown, e.Known[0])
}

// Plain is the key in a certificate, or the key itself.
func Plain(key ssh.PublicKey) ssh.PublicKey {
	if cert, ok := key.(*ssh.Certificate); ok {
		return cert.Key
	}
	return key
}

// Fingerprint is that of a key, or of the key in a certificate, as ssh prints it.
func Fingerprint(key ssh.PublicKey, md5 bool) string {
	if md5 {
		return "MD5:" + ssh.FingerprintLegacyMD5(Plain(key))
	}
	return ssh.FingerprintSHA256(Plain(key))
}
