package web

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/seed-3119e985/genv/snapshot/quota"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

const lookEvery = time.Second // minimum time between checks for changes

// Access says who may use a TCP listener, in the format of Prometheus' web.config.file. It follows changes of this file
// and those that it names. While they can't be used, the previous rules stay in force.
type Access struct {
	path   string
	now    func() time.Time
	failed func(error)
	turns  quota.Turns[string] // one check at a time, clients in turn
	key    []byte              // for the hashes of remembered passwords

	mu     sync.Mutex
	looked time.Time
	files  []string // last read, even if unusable
	state  string   // of the files
	rules  *accessRules
	right  map[[sha256.Size]byte]time.Time // remembered passwords, until when
}

// OpenAccess reads the file. failed gets changes that can't be used.
func OpenAccess(path string, now func() time.Time, failed func(error)) (*Access, error) {
	a := &Access{path: path, now: now, failed: failed, key: make([]byte, 32)}
	a.turns.Most = maxWaiting
	_, _ = rand.Read(a.key) // never fails
	rules, err := readAccess(path)
	if err != nil {
		return nil, err
	}
	a.set(rules)
	return a, nil
}

// set puts rules in force. The next look rereads them, as a file may have changed meanwhile.
func (a *Access) set(rules *accessRules) {
	a.rules, a.files, a.state, a.right = rules, rules.files, "", make(map[[sha256.Size]byte]time.Time)
}

// Demands are what clients need.
type Demands struct {
	TLS, Passwords bool
	Certificates   bool // of clients, and they are verified
}

// Demands returns what the file demands.
func (a *Access) Demands() Demands { return a.current().demands() }

func (r *accessRules) demands() Demands {
	return Demands{
		TLS: r.tls != nil, Passwords: r.hashes != nil,
		Certificates: r.tls != nil && r.tls.ClientAuth == tls.RequireAndVerifyClientCert,
	}
}

// TLS is the server's configuration; nil without a tls_server_config.
func (a *Access) TLS() *tls.Config {
	if a.current().tls == nil {
		return nil
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return a.current().tls, nil },
	}
}

func (a *Access) current() *accessRules {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refresh()
	return a.rules
}

func (a *Access) refresh() {
	now := a.now()
	if now.Sub(a.looked) < lookEvery && !now.Before(a.looked) {
		return
	}
	a.looked = now
	state := folder.Stamp(a.files...)
	if state == a.state {
		return
	}
	rules, err := readAccess(a.path)
	if err == nil {
		err = weaker(a.rules.demands(), rules.demands())
	}
	if err != nil {
		if a.state = state; rules != nil && !slices.Equal(rules.files, a.files) { // a named file may come later
			a.files, a.state = rules.files, folder.Stamp(rules.files...)
		}
		a.failed(fmt.Errorf("what was read before stays in force: %w", err))
		return
	}
	same := slices.Equal(rules.files, a.files)
	if a.set(rules); same {
		a.state = state
	}
}

func weaker(before, after Demands) error {
	switch {
	case before.TLS != after.TLS:
		return errors.New("tls_server_config was added or removed: restart for that")
	case before.Passwords && !after.Passwords:
		return errors.New("basic_auth_users was removed: restart for that")
	case before.Certificates && !after.Certificates:
		return errors.New("client certificates aren't required any more: restart for that")
	}
	return nil
}

const (
	maxCost       = 14      // of a password's hash; takes a second
	maxAccessFile = 4 << 20 // bytes per file
)

type accessRules struct {
	files   []string          // itself, certificate, key, client CA
	tls     *tls.Config       // may be nil
	hashes  map[string][]byte // by user
	slowest []byte            // for unknown users, so that they take as long
}

var clientAuthTypes = map[string]tls.ClientAuthType{
	"NoClientCert": tls.NoClientCert, "RequestClientCert": tls.RequestClientCert,
	"RequireClientCert": tls.RequireAnyClientCert, "RequireAnyClientCert": tls.RequireAnyClientCert,
	"VerifyClientCertIfGiven":    tls.VerifyClientCertIfGiven,
	"RequireAndVerifyClientCert": tls.RequireAndVerifyClientCert,
}

// readAccess reads all files. After an error in a named one, the result still has the names.
func readAccess(path string) (*accessRules, error) {
	data, err := folder.ReadRegular(path, maxAccessFile)
	if err != nil {
		return nil, err
	}
	r := &accessRules{files: []string{path}}
	var server *strictyaml.Node
	doc := strictyaml.Parse(path, data)
	doc.Root().Map(strictyaml.Keys{
		"tls_server_config": func(n *strictyaml.Node) {
			server = n
			r.parseTLS(n)
		},
		"basic_auth_users": r.parseUsers,
	})
	if failed, ok := errors.AsType[*strictyaml.ParseError](doc.Err()); ok {
		failed.Source = "" // the line may have a password's hash
		return nil, failed
	}
	if server == nil {
		return r, nil
	}
	if err := r.readCertificates(); err != nil {
		return r, fmt.Errorf("%s: %w", server.Place(), err)
	}
	return r, nil
}

func (r *accessRules) parseUsers(n *strictyaml.Node) {
	r.hashes = make(map[string][]byte)
	slowest := 0
	n.Each(func(key, value *strictyaml.Node) {
		user, hash := key.Scalar(), value.Text()
		if hash == "" {
			return // already reported
		}
		cost, err := bcrypt.Cost([]byte(hash))
		switch {
		case user == "" || strings.Contains(user, ":"):
			key.Failf("a user's name must not be empty or contain a colon")
		case err != nil || len(hash) != 60:
			value.Failf("not a bcrypt hash, as `htpasswd -nB USER` prints it after the colon")
		case cost > maxCost:
			value.Failf("a cost of %d is too slow: use at most %d, as with `htpasswd -nB -C %d USER`", cost, maxCost,
				maxCost)
		}
		if r.hashes[user] = []byte(hash); cost >= slowest {
			slowest, r.slowest = cost, r.hashes[user]
		}
	})
	if len(r.hashes) == 0 {
		n.Failf("there are no users; add one as `NAME: HASH`, or remove basic_auth_users")
	}
}

// parseTLS offers no HTTP/2, as the program may lack it, and no resumption, which could outlive client certificates.
func (r *accessRules) parseTLS(n *strictyaml.Node) {
	r.tls = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, SessionTicketsDisabled: true}
	var cert, key, clientCA string
	file := func(path *string) func(*strictyaml.Node) {
		return func(n *strictyaml.Node) {
			if *path = n.Text(); *path != "" && !filepath.IsAbs(*path) {
				*path = filepath.Join(filepath.Dir(r.files[0]), *path)
			}
		}
	}
	n.Map(strictyaml.Keys{
		"cert_file": file(&cert), "key_file": file(&key), "client_ca_file": file(&clientCA),
		"client_auth_type": func(n *strictyaml.Node) {
			r.tls.ClientAuth = clientAuthTypes[n.OneOf("NoClientCert", "RequestClientCert", "RequireClientCert",
				"RequireAnyClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert")]
		},
		"min_version": func(n *strictyaml.Node) {
			if n.OneOf("TLS12", "TLS13") == "TLS13" {
				r.tls.MinVersion = tls.VersionTLS13
			}
		},
	})
	verifies := r.tls.ClientAuth >= tls.VerifyClientCertIfGiven
	switch {
	case cert == "" || key == "":
		n.Failf("write both cert_file and key_file")
	case verifies && clientCA == "":
		n.Failf("client_auth_type needs client_ca_file, which has the certificates of those who may sign")
	case !verifies && clientCA != "":
		n.Failf("client_ca_file is not used; add `client_auth_type: RequireAndVerifyClientCert`")
	}
	if r.files = append(r.files, cert, key); verifies {
		r.files = append(r.files, clientCA)
	}
}

func (r *accessRules) readCertificates() error {
	var contents [][]byte
	for _, path := range r.files[1:] {
		data, err := folder.ReadRegular(path, maxAccessFile)
		if err != nil {
			return err
		}
		contents = append(contents, data)
	}
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return fmt.Errorf("%s with %s: %w", r.files[1], r.files[2], err)
	}
	r.tls.Certificates = []tls.Certificate{pair}
	if len(contents) > 2 {
		r.tls.ClientCAs = x509.NewCertPool()
		if !r.tls.ClientCAs.AppendCertsFromPEM(contents[2]) {
			return fmt.Errorf("%s has no certificate", r.files[3])
		}
	}
	return nil
}
