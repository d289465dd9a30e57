package web

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// lookEvery is how often a file is looked at for changes, if anybody connects.
const lookEvery = time.Second

// Access is who may use a TCP listener: a file with a certificate and users, in the format that
// Prometheus' exporters call web.config.file. It follows changes of the file and of those that it
// names. While they can't be used, what was read before stays in force.
type Access struct {
	path   string
	now    func() time.Time
	failed func(error)
	turns  turns
	key    []byte // of remembered passwords, so that what is in memory can't be compared with anything

	mu     sync.Mutex
	looked time.Time
	files  []string // that were read last, also if they can't be used
	state  string   // of the files
	rules  *accessRules
	right  map[[sha256.Size]byte]time.Time // passwords, and until when they are remembered
}

// OpenAccess reads a file. failed is called when a change of it can't be used.
func OpenAccess(path string, now func() time.Time, failed func(error)) (*Access, error) {
	a := &Access{path: path, now: now, failed: failed, key: make([]byte, 32)}
	a.turns.running, a.turns.clients = make(chan struct{}, 1), make(map[string]*waiting)
	_, _ = rand.Read(a.key) // never fails
	rules, err := readAccess(path)
	if err != nil {
		return nil, err
	}
	a.set(rules)
	return a, nil
}

// set puts rules in force. They are read once more at the next look, in case that a file changed meanwhile.
func (a *Access) set(rules *accessRules) {
	a.rules, a.files, a.state, a.right = rules, rules.files, "", make(map[[sha256.Size]byte]time.Time)
}

// Demands are what clients need.
type Demands struct {
	TLS, Passwords bool
	Certificates   bool // of clients, that are verified
}

// Demands are those of the file.
func (a *Access) Demands() Demands { return a.current().demands() }

func (r *accessRules) demands() Demands {
	return Demands{
		TLS: r.tls != nil, Passwords: r.hashes != nil,
		Certificates: r.tls != nil && r.tls.ClientAuth == tls.RequireAndVerifyClientCert,
	}
}

// TLS is the configuration of a server; nil without a tls_server_config.
func (a *Access) TLS() *tls.Config {
	if a.current().tls == nil {
		return nil
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return a.current().tls, nil },
	}
}

// current are the rules of the moment.
func (a *Access) current() *accessRules {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refresh()
	return a.rules
}

// refresh reads the files again if one of them changed. The caller holds the lock.
func (a *Access) refresh() {
	now := a.now()
	if now.Sub(a.looked) < lookEvery && !now.Before(a.looked) {
		return
	}
	a.looked = now
	state := stateOf(a.files)
	if state == a.state {
		return
	}
	rules, err := readAccess(a.path)
	if err == nil {
		err = weaker(a.rules.demands(), rules.demands())
	}
	if err != nil {
		if a.state = state; rules != nil && !slices.Equal(rules.files, a.files) { // what it names may come later
			a.files, a.state = rules.files, stateOf(rules.files)
		}
		a.failed(fmt.Errorf("what was read before stays in force: %w", err))
		return
	}
	same := slices.Equal(rules.files, a.files)
	if a.set(rules); same {
		a.state = state
	}
}

// weaker refuses changes for which a listener wasn't opened.
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

// stateOf changes with the content of files.
func stateOf(files []string) string {
	var state strings.Builder
	for _, path := range files {
		if info, err := os.Stat(path); err == nil {
			fmt.Fprintln(&state, info.ModTime().UnixNano(), info.Size())
		} else {
			fmt.Fprintln(&state, err)
		}
	}
	return state.String()
}
