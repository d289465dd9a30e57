package testfleet

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

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

// ClientKey is the path of the only private key that the hosts accept, in
// OpenSSH's format.
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

// configQuote quotes a path for ssh_config if it contains a blank. "%" begins a
// token there.
func configQuote(path string) string {
	path = strings.ReplaceAll(path, "%", "%%")
	if strings.ContainsAny(path, " \t") {
		return `"` + path + `"`
	}
	return path
}

// WriteKey writes a new private key in OpenSSH's format and returns its public
// half.
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
