package hostkeys

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"
)

// DB is the content of some known_hosts files at a point in time.
type DB struct {
	known  *knownhosts.HostKeyDB
	places []Place // of each line that was passed to the library
	stamp  string
}

// Unknown is the error for a host without a known key.
type Unknown struct {
	Name string // as in known_hosts
	Key  ssh.PublicKey
}

func (e *Unknown) Error() string {
	return fmt.Sprintf("no key of %s is known; it shows a %s key with fingerprint %s", e.Name, e.Key.Type(), ssh.FingerprintSHA256(e.Key))
}

// Changed is the error for a host with a key that differs from the known ones, or
// that is revoked.
type Changed struct {
	Name    string
	Key     ssh.PublicKey
	Known   []Place // the lines with other keys, or the one that revokes this key
	Revoked bool
}

func (e *Changed) Error() string {
	shown := fmt.Sprintf("%s with fingerprint %s", e.Key.Type(), ssh.FingerprintSHA256(e.Key))
	if e.Revoked {
		return fmt.Sprintf("THE KEY OF %s IS REVOKED at %s: %s", e.Name, e.Known[0], shown)
	}
	return fmt.Sprintf("THE KEY OF %s HAS CHANGED: it shows %s, but %s has another key", e.Name, shown, e.Known[0])
}

// Address is the `name:port` under which a host is looked up, in lower case.
func Address(name string, port int) string {
	return net.JoinHostPort(strings.ToLower(name), fmt.Sprint(port))
}

// Algorithms are the host key algorithms to request, of those that are allowed:
// those of the known keys of the address, in the order of known_hosts, then the
// others, so that a host that lost its old key is reported as changed. Certificates
// are only requested where an authority is known, unless nothing else is allowed.
func (db *DB) Algorithms(address string, allowed []string) []string {
	algorithms := slices.DeleteFunc(db.known.HostKeyAlgorithms(address), func(algorithm string) bool {
		return !slices.Contains(allowed, algorithm)
	})
	for _, algorithm := range allowed {
		if !strings.Contains(algorithm, "-cert-") && !slices.Contains(algorithms, algorithm) {
			algorithms = append(algorithms, algorithm)
		}
	}
	if len(algorithms) == 0 { // the library would take its own
		return allowed
	}
	return algorithms
}

// Check returns nil for a known key of the address, *Unknown, *Changed, or
// another error for an invalid certificate.
func (db *DB) Check(address string, key ssh.PublicKey) error {
	// Keys are looked up by name only; the library needs some TCP address, and a
	// proxy's pipe has none.
	err := db.known.HostKeyCallback()(address, &net.TCPAddr{IP: net.IPv4zero}, key)
	name := knownhosts.Normalize(address)
	var revoked *xknownhosts.RevokedError
	var keyErr *xknownhosts.KeyError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &revoked):
		return &Changed{Name: name, Key: key, Known: []Place{db.place(revoked.Revoked)}, Revoked: true}
	case !errors.As(err, &keyErr):
		return fmt.Errorf("the host certificate of %s is not valid: %w", name, err)
	}
	changed := &Changed{Name: name, Key: key}
	for _, known := range db.known.HostKeys(address) {
		if known.Cert {
			continue // an authority says nothing about a plain key
		}
		for _, want := range keyErr.Want {
			if string(want.Key.Marshal()) == string(known.Marshal()) {
				changed.Known = append(changed.Known, db.place(want))
			}
		}
	}
	if len(changed.Known) == 0 {
		return &Unknown{Name: name, Key: key}
	}
	return changed
}

func (db *DB) place(known xknownhosts.KnownKey) Place {
	if known.Line < 1 || known.Line > len(db.places) {
		return Place{known.Filename, known.Line}
	}
	return db.places[known.Line-1]
}
