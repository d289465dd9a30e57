package inprocess

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"golang.org/x/crypto/ssh"
)

// ErrPortInUse is wrapped by Start's error when another program listens where a
// host should: end it, or choose another port.
var ErrPortInUse = errors.New("the port is in use")

// Options describe a fleet.
type Options struct {
	// Dir is an existing folder for the client key, known_hosts and
	// ssh_config. Who can read it can run the handlers' commands.
	Dir string
	// Hosts are the fleet, at least one; names and addresses are unique.
	Hosts []HostOptions
	// Port is one TCP port for all hosts; 0 chooses one that is free on all
	// addresses.
	Port int
	// Seed decides the noise of faults.
	Seed uint64
}

// HostOptions describe a host.
type HostOptions struct {
	Name    string
	Address string // 127.x.y.z, or ::1
	Handler Handler
}

// Fleet is a set of hosts that listen.
type Fleet struct {
	dir    string
	port   int
	seed   uint64
	client ssh.PublicKey
	hosts  []*Host
	byName map[string]*Host

	ctx    context.Context // the fleet's life: ends every connection
	cancel context.CancelFunc
	work   sync.WaitGroup // every goroutine of the fleet
}

// Start lets all hosts listen and writes the files that a client needs. It
// either starts every host or none.
func Start(options Options) (*Fleet, error) {
	f := &Fleet{dir: options.Dir, seed: options.Seed, byName: map[string]*Host{}}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	if err := f.start(options); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (f *Fleet) start(options Options) error {
	for i, o := range options.Hosts {
		if err := f.addHost(i, o); err != nil {
			return err
		}
	}
	if len(f.hosts) == 0 {
		return errors.New("a fleet needs at least one host")
	}
	if err := f.writeClientKey(); err != nil { // before anybody can log in
		return err
	}
	if err := f.listen(options.Port); err != nil {
		return err
	}
	return f.writeFiles()
}

func (f *Fleet) addHost(i int, o HostOptions) error {
	if o.Name == "" || o.Handler == nil {
		return fmt.Errorf("host %d needs a name and a handler", i)
	}
	if f.byName[o.Name] != nil {
		return fmt.Errorf("host %q is listed twice", o.Name)
	}
	key, err := newKey(rand.Reader)
	if err != nil {
		return err
	}
	wrong, err := newKey(rand.Reader)
	if err != nil {
		return err
	}
	h := &Host{name: o.Name, address: o.Address, handler: o.Handler, fleet: f, number: i, key: key, wrongKey: wrong, faults: healthy()}
	f.hosts = append(f.hosts, h)
	f.byName[o.Name] = h
	return nil
}

// portAttempts is how often another free port is tried when the first host's
// is taken on another address.
const portAttempts = 16

// listen opens all listeners on one port.
func (f *Fleet) listen(port int) (err error) {
	attempts := 1
	if port == 0 {
		attempts = portAttempts
	}
	for range attempts {
		if err = f.listenAll(port); !errors.Is(err, ErrPortInUse) {
			return err
		}
		for _, h := range f.hosts {
			h.stopListening()
		}
	}
	return err
}

func (f *Fleet) listenAll(port int) error {
	for _, h := range f.hosts {
		if err := h.listen(port); err != nil {
			return err
		}
		port = h.port()
	}
	f.port = port
	return nil
}

// Close ends all connections, the commands that run and the listeners, and
// waits until every goroutine of the fleet has ended.
func (f *Fleet) Close() {
	f.cancel()
	for _, h := range f.hosts {
		h.stopListening()
	}
	f.work.Wait()
}

// Port is the port that all hosts listen on.
func (f *Fleet) Port() int { return f.port }

// Hosts lists the hosts in the order of the Options.
func (f *Fleet) Hosts() []*Host { return f.hosts }

// Host returns the host with a name, or nil.
func (f *Fleet) Host(name string) *Host { return f.byName[name] }

// SSHConfig is the path of a file for `ssh -F` and `genv remote -F` that knows
// all hosts by name, with the other two files in it.
func (f *Fleet) SSHConfig() string { return filepath.Join(f.dir, "ssh_config") }

// KnownHosts is the path of the file with all hosts' keys.
func (f *Fleet) KnownHosts() string { return filepath.Join(f.dir, "known_hosts") }

// ClientKey is the path of the only private key that the hosts accept, in
// OpenSSH's format.
func (f *Fleet) ClientKey() string { return filepath.Join(f.dir, "id_ed25519") }
