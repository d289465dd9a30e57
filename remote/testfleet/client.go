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
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
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
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
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
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	key, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	for name, block := range map[string]*pem.Block{"cert": {Type: "CERTIFICATE", Bytes: certificate}, "key": {Type: "PRIVATE KEY", Bytes: key}} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
}
