package testfleet

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// Client is the folder of the files with which any SSH client reaches a fleet.
type Client struct {
	Dir  string
	Port int // the TCP port of all hosts
}

// Target is a host of a fleet, as an SSH client sees it.
type Target struct {
	Name, Address string
	User          string // the login
	Key           ssh.PublicKey
}

// ClientKey is the path of the only private key that the hosts accept, in OpenSSH's format.
func (c Client) ClientKey() string { return filepath.Join(c.Dir, "id_ed25519") }

// KnownHosts is the path of the file with all hosts' keys.
func (c Client) KnownHosts() string { return filepath.Join(c.Dir, "known_hosts") }

// SSHConfig is the path of a file for `ssh -F` and `genv remote -F` that knows
// all hosts by name, with their address, port, login, and the two files above.
func (c Client) SSHConfig() string { return filepath.Join(c.Dir, "ssh_config") }

// WriteFiles writes known_hosts and ssh_config. The key comes from WriteKey.
func (c Client) WriteFiles(targets []Target) error {
	var known, config strings.Builder
	for _, t := range targets {
		port := strconv.Itoa(c.Port)
		names := []string{net.JoinHostPort(t.Name, port), net.JoinHostPort(t.Address, port)}
		fmt.Fprintln(&known, knownhosts.Line(names, t.Key))
		fmt.Fprintf(&config, "Host %s\n\tHostName %s\n\tUser %s\n", t.Name, t.Address, t.User)
	}
	fmt.Fprintf(&config, `Host *
	Port %d
	IdentityFile %s
	IdentitiesOnly yes
	IdentityAgent none
	UserKnownHostsFile %s
	GlobalKnownHostsFile /dev/null
	StrictHostKeyChecking yes
	BatchMode yes
	LogLevel ERROR
`, c.Port, configQuote(c.ClientKey()), configQuote(c.KnownHosts()))
	if err := os.WriteFile(c.KnownHosts(), []byte(known.String()), 0o600); err != nil {
		return err
	}
	return os.WriteFile(c.SSHConfig(), []byte(config.String()), 0o600)
}

// configQuote quotes a path for ssh_config if it contains a blank. "%" begins a token there.
func configQuote(path string) string {
	path = strings.ReplaceAll(path, "%", "%%")
	if strings.ContainsAny(path, " \t") {
		return `"` + path + `"`
	}
	return path
}

// WriteKey writes a new private key in OpenSSH's format and returns its public half.
func WriteKey(path string) (ssh.PublicKey, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate a key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(private, "genv test fleet")
	if err != nil {
		return nil, err
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return nil, err
	}
	return signer.PublicKey(), os.WriteFile(path, pem.EncodeToMemory(block), 0o600)
}

// WriteCertificate writes a certificate that is its own authority, for servers and clients, into
// a folder as "cert", and its key as "key". Its names may be addresses.
func WriteCertificate(t testing.TB, dir, commonName string, names ...string) {
	t.Helper()
	private := proctest.Try(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).OK(t)
	serial := proctest.Try(rand.Int(rand.Reader, big.NewInt(1<<62))).OK(t)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: commonName}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	certificate := proctest.Try(x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)).OK(t)
	key := proctest.Try(x509.MarshalPKCS8PrivateKey(private)).OK(t)
	for name, block := range map[string]*pem.Block{"cert": {Type: "CERTIFICATE", Bytes: certificate}, "key": {Type: "PRIVATE KEY", Bytes: key}} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
}

// Cut leads to some addresses, as a network does that can be interrupted. Then what is sent is
// lost, and connections stay open, as when packets are dropped.
type Cut struct {
	listeners         []net.Listener
	requests, answers atomic.Bool // are lost
	work              sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
}

// StartCut returns a way to addresses. It ends with the test.
func StartCut(t testing.TB, addresses ...string) *Cut {
	t.Helper()
	way := &Cut{conns: make(map[net.Conn]bool)}
	for _, address := range addresses {
		l := proctest.Try(net.Listen("tcp", "127.0.0.1:0")).OK(t)
		way.listeners = append(way.listeners, l)
		way.work.Go(func() { way.serve(l, address) })
	}
	t.Cleanup(way.close)
	return way
}

// Addresses lead to those of StartCut, in their order.
func (w *Cut) Addresses() []string {
	var list []string
	for _, l := range w.listeners {
		list = append(list, l.Addr().String())
	}
	return list
}

// Interrupt loses what is sent from now on, in both directions, until Mend.
func (w *Cut) Interrupt() {
	w.requests.Store(true)
	w.answers.Store(true)
}

// LoseRequests loses what is sent to the addresses from now on, and LoseAnswers what they send, until Mend.
func (w *Cut) LoseRequests() { w.requests.Store(true) }

// LoseAnswers is the other direction of LoseRequests.
func (w *Cut) LoseAnswers() { w.answers.Store(true) }

// Mend ends what was begun. Connections from before are over.
func (w *Cut) Mend() {
	w.closeConns()
	w.requests.Store(false)
	w.answers.Store(false)
}

func (w *Cut) close() {
	for _, l := range w.listeners {
		_ = l.Close()
	}
	w.closeConns()
	w.work.Wait()
}

func (w *Cut) closeConns() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		_ = c.Close()
	}
	clear(w.conns)
}

func (w *Cut) keep(c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns[c] = true
}

func (w *Cut) serve(l net.Listener, address string) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		w.keep(client)
		server, err := net.Dial("tcp", address)
		if err != nil {
			_ = client.Close()
			continue
		}
		w.keep(server)
		w.work.Go(func() { carry(server, client, &w.requests) })
		w.work.Go(func() { carry(client, server, &w.answers) })
	}
}

// carry copies until one end is closed, and loses what comes while the direction is cut.
func carry(to, from net.Conn, lost *atomic.Bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !lost.Load() {
			_, err = to.Write(buffer[:n])
		}
		if err == nil {
			continue
		}
		if !lost.Load() { // else the other end doesn't hear of it
			_ = to.Close()
			_ = from.Close()
		}
		return
	}
}

// ServeAgent serves an agent at a socket until the test ends.
func ServeAgent(t testing.TB, keys agent.Agent) string {
	t.Helper()
	path := filepath.Join(proctest.PublicDir(t, 0o700), "s")
	listener := proctest.Try(net.Listen("unix", path)).OK(t)
	go func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			go func() {
				_ = agent.ServeAgent(keys, conn)
				_ = conn.Close()
			}()
		}
	}()
	t.Cleanup(func() { _ = listener.Close() })
	return path
}
