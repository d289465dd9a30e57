// Package inprocess makes simulated GPU hosts reachable: SSH servers inside this process on loopback addresses. It
// needs no root, no sshd and no network but 127.0.0.0/8, and its hosts can fail in ways that a real sshd cannot.
//
// A Server checks the client's key and hands each command line to its Handler. Start writes a client key, known_hosts
// and ssh_config into a folder, so that any SSH client can connect:
//
//	fleet, err := inprocess.Start(dir, 0, &inprocess.Server{
//		Name: "gpu-01", Address: "127.77.0.1", Handler: &inprocess.Exec{Machine: machine},
//	})
//	…
//	defer fleet.Close()
//	// genv remote -F dir/ssh_config -H gpu-01 devices
//
// There are no users: all commands run as the caller.
package inprocess

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"

	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote/testfleet"
)

// Fleet is a set of servers that listen.
type Fleet struct {
	testfleet.Client
	shared
	servers []*Server
	byName  map[string]*Server
	cancel  context.CancelFunc // of ctx
}

// Start lets all servers listen on one TCP port (0: one that is free on all addresses), and writes the files that a
// client needs into dir. Users who can read dir can run the handlers' commands. It starts all servers or none.
func Start(dir string, port int, servers ...*Server) (*Fleet, error) {
	f := &Fleet{Client: testfleet.Client{Dir: dir, Port: port}, byName: map[string]*Server{}}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	if err := f.start(servers); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (f *Fleet) start(servers []*Server) (err error) {
	for i, s := range servers {
		if err := f.add(i, s); err != nil {
			return err
		}
	}
	if len(f.servers) == 0 {
		return errors.New("a fleet needs at least one host")
	}
	if f.key, err = testfleet.WriteKey(f.ClientKey()); err != nil { // before the hosts listen
		return err
	}
	if err := f.listen(); err != nil {
		return err
	}
	targets := make([]testfleet.Target, len(f.servers))
	for i, s := range f.servers {
		targets[i] = testfleet.Target{Name: s.Name, Address: s.Address, User: "admin", Key: s.key.PublicKey()}
	}
	return f.WriteFiles(targets)
}

func (f *Fleet) add(number int, s *Server) (err error) {
	if s.Name == "" || s.Handler == nil {
		return fmt.Errorf("host %d needs a name and a handler", number)
	}
	if f.byName[s.Name] != nil {
		return fmt.Errorf("host %q is listed twice", s.Name)
	}
	s.fleet, s.number = &f.shared, number
	f.servers = append(f.servers, s)
	f.byName[s.Name] = s
	s.key, err = newKey()
	return err
}

func newKey() (ssh.Signer, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate a host key: %w", err)
	}
	return ssh.NewSignerFromKey(private)
}

const portAttempts = 16 // how often another free port is tried when the first host's is taken on another address

// listen opens all listeners on one port.
func (f *Fleet) listen() (err error) {
	port, attempts := f.Port, 1
	if port == 0 {
		attempts = portAttempts
	}
	for range attempts {
		if err = f.listenAll(port); !errors.Is(err, ErrPortInUse) {
			return err
		}
		for _, s := range f.servers {
			s.stopListening()
		}
	}
	return err
}

func (f *Fleet) listenAll(port int) error {
	for _, s := range f.servers {
		if err := s.listen(port); err != nil {
			return err
		}
		port = s.port
	}
	f.Port = port
	return nil
}

// Close ends all connections, the commands that run and the listeners, and
// waits until every goroutine of the fleet has ended.
func (f *Fleet) Close() {
	f.cancel()
	for _, s := range f.servers {
		s.stopListening()
	}
	f.work.Wait()
}

// Hosts lists the servers in the order in which they were given.
func (f *Fleet) Hosts() []*Server { return f.servers }

// Host returns the server of the host with a name, or nil.
func (f *Fleet) Host(name string) *Server { return f.byName[name] }
