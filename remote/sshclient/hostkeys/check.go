// Package hostkeys checks host keys like OpenSSH: by known_hosts with hashed names, patterns, ports, @cert-authority
// and @revoked, and by KnownHostsCommand. Changed files are reread. An unreadable file or bad line is skipped with a
// warning, and only refuses a host without a key elsewhere.
//
// It is stricter than OpenSSH: a key revoked for the name without port is never accepted, and `accept-new` adds no key
// while a file is unreadable.
//
//	store := hostkeys.NewCache(log)
//	host := store.Lookup([]string{"/home/alice/.ssh/known_hosts"}, hostkeys.Name{Host: "gpu-07", Port: 22})
//	config.HostKeyAlgorithms = host.Algorithms(hostConfig.HostKeyAlgorithms)
//	err := host.Check(key, rules, time.Now()) // *Unknown, *Changed
package hostkeys

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// Name is the name to look up a host's keys by.
type Name struct {
	Host string // name or address, without a port
	Port int    // 0 for HostKeyAlias, which has none
}

// String is the name as in known_hosts.
func (n Name) String() string {
	if n.Port == 0 || n.Port == 22 {
		return strings.ToLower(n.Host)
	}
	return fmt.Sprintf("[%s]:%d", strings.ToLower(n.Host), n.Port)
}

// Known is what known_hosts files say about a host.
type Known struct {
	name    Name
	paths   []string
	files   []*knownHosts
	entries []*knownKey // of the name with its port
	missing []error     // why something couldn't be read
}

// Lookup returns what the readable files say about a host.
func (s *Cache) Lookup(files []string, name Name) *Known {
	h := &Known{name: name, paths: files}
	for _, path := range files {
		f := s.load(path)
		h.files = append(h.files, f)
		h.entries = append(h.entries, entriesOf(f.entries, name.String())...)
		if f.err != nil {
			h.missing = append(h.missing, f.err)
		}
	}
	return h
}

// Rules are ssh_config's rules on host keys.
type Rules struct {
	Authority func(*ssh.Certificate) bool // whether CASignatureAlgorithms allow the signature
	AddTo     string                      // file for new keys of accept-new
	Hash      bool                        // HashKnownHosts
}

// Algorithms are in ssh's order, to get the key that ssh gets: those of known keys first, unless the most preferred is
// known.
func (h *Known) Algorithms(preferred []string) []string {
	kinds, authorities := map[string]bool{}, false
	for _, e := range h.entries {
		authorities = authorities || e.marker == authority
		if e.marker == "" {
			kinds[e.kind] = true
		}
	}
	if len(preferred) == 0 || kinds[keyType(plain(preferred[0]))] {
		return preferred
	}
	var first, last []string
	for _, algorithm := range preferred {
		if kinds[keyType(plain(algorithm))] || authorities && plain(algorithm) != algorithm {
			first = append(first, algorithm)
		} else {
			last = append(last, algorithm)
		}
	}
	return append(first, last...)
}

// Expected is the known key that the host shows for these algorithms, or nil.
func (h *Known) Expected(algorithms []string) ssh.PublicKey {
	for _, algorithm := range algorithms {
		for _, e := range h.entries {
			if e.marker == "" && e.kind == keyType(plain(algorithm)) {
				if key, err := ssh.ParsePublicKey([]byte(e.key)); err == nil {
					return key
				}
			}
		}
	}
	return nil
}

func plain(algorithm string) string {
	name, isCert := strings.CutSuffix(algorithm, "-cert-v01@openssh.com")
	if isCert && strings.HasPrefix(name, "sk-") {
		name += "@openssh.com"
	}
	return name
}

func keyType(algorithm string) string {
	switch algorithm {
	case ssh.KeyAlgoRSASHA256, ssh.KeyAlgoRSASHA512:
		return ssh.KeyAlgoRSA
	case ssh.CertAlgoRSASHA256v01, ssh.CertAlgoRSASHA512v01:
		return ssh.CertAlgoRSAv01
	}
	return algorithm
}

// Check returns nil, *Unknown or *Changed, like OpenSSH (sshconnect.c, check_host_key): an unaccepted certificate
// counts as its key, and a host unknown with its port is looked up without.
func (h *Known) Check(key ssh.PublicKey, rules Rules, now time.Time) error {
	c := check{Known: h, rules: rules, now: now}
	return c.key(key, h.entries, h.name.Port == 0 || h.name.Port == 22)
}

type check struct {
	*Known
	rules   Rules
	now     time.Time
	refused error // of the certificate
}

// key checks a key. bare: the entries are of the name without port.
func (c *check) key(key ssh.PublicKey, entries []*knownKey, bare bool) error {
	cert, isCert := key.(*ssh.Certificate)
	err := c.compare(key, entries)
	var unknown *Unknown
	var changed *Changed
	switch {
	case errors.As(err, &changed) && changed.Revoked:
		return err
	case err == nil && isCert:
		if err = c.certificate(cert); err == nil {
			return nil
		}
		c.refused = err
	case errors.As(err, &unknown) && !bare:
		var without []*knownKey
		for _, f := range c.files {
			without = append(without, entriesOf(f.entries, Name{Host: c.name.Host}.String())...)
		}
		found := c.key(key, without, true)
		if found == nil || errors.As(found, &changed) && changed.Revoked {
			return found
		}
	}
	if isCert {
		return c.key(cert.Key, entries, bare)
	}
	return err
}

func (c *check) compare(key ssh.PublicKey, entries []*knownKey) error {
	marker, wanted, inner, isCert := "", key, key, false
	if cert, ok := key.(*ssh.Certificate); ok {
		marker, wanted, inner, isCert = authority, cert.SignatureKey, cert.Key, true
	}
	changed := &Changed{Name: c.name.String(), Key: inner}
	found := false
	for _, e := range entries {
		switch {
		case e.marker == revoked && (e.key == string(inner.Marshal()) || isCert && e.key == string(wanted.Marshal())):
			changed.Revoked, changed.Known = true, []Position{e.place}
			return changed
		case e.marker != marker:
		case e.key == string(wanted.Marshal()):
			found = true
		case !isCert: // another authority says nothing about the host
			changed.Known = append(changed.Known, e.place)
		}
	}
	switch {
	case found:
		return nil
	case len(changed.Known) > 0:
		return changed
	}
	return &Unknown{
		Name: changed.Name, Key: inner, Refused: c.refused != nil,
		also: errors.Join(slices.Concat(c.missing, []error{c.refused})...),
	}
}

func (c *check) certificate(cert *ssh.Certificate) error {
	switch checker := (ssh.CertChecker{Clock: func() time.Time { return c.now }}); {
	case cert.CertType != ssh.HostCert:
		return errors.New("its certificate is not one for hosts")
	case !c.rules.Authority(cert):
		return fmt.Errorf("its certificate is signed with %s, which CASignatureAlgorithms in ssh_config does not allow",
			cert.Signature.Format)
	default:
		if err := checker.CheckCert(strings.ToLower(c.name.Host), cert); err != nil {
			return fmt.Errorf("its certificate is not accepted: %w", err)
		}
	}
	return nil
}

// Unknown is the error for a host without a known key.
type Unknown struct {
	Name    string // as in known_hosts
	Key     ssh.PublicKey
	also    error // what couldn't be read, or why a certificate wasn't accepted
	Refused bool  // a known authority's certificate was not accepted
}

func (e *Unknown) Error() string {
	text := fmt.Sprintf("no key of %s is known; it shows a %s key with fingerprint %s", e.Name, e.Key.Type(),
		Fingerprint(e.Key))
	if e.also != nil {
		text += " (" + strings.ReplaceAll(e.also.Error(), "\n", "; ") + ")"
	}
	return text
}

// Changed is the error for another key than known ones, or a revoked one.
type Changed struct {
	Name    string
	Key     ssh.PublicKey
	Known   []Position // other keys, or the line that revokes this one
	Revoked bool
}

func (e *Changed) Error() string {
	shown := fmt.Sprintf("%s with fingerprint %s", e.Key.Type(), Fingerprint(e.Key))
	if e.Revoked {
		return fmt.Sprintf("THE KEY OF %s IS REVOKED at %s: %s", e.Name, e.Known[0], shown)
	}
	return fmt.Sprintf("THE KEY OF %s HAS CHANGED: it shows %s, but %s has another key", e.Name, shown, e.Known[0])
}

// Plain returns the key in a certificate, or the key itself.
func Plain(key ssh.PublicKey) ssh.PublicKey {
	if cert, ok := key.(*ssh.Certificate); ok {
		return cert.Key
	}
	return key
}

// Fingerprint is ssh's fingerprint of a key, or of a certificate's key.
func Fingerprint(key ssh.PublicKey) string {
	return ssh.FingerprintSHA256(Plain(key))
}
