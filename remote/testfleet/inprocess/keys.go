package inprocess

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// User is the login name in the fleet's ssh_config; the hosts accept any.
const User = "admin"

func newKey(random io.Reader) (ssh.Signer, error) {
	_, private, err := ed25519.GenerateKey(random)
	if err != nil {
		return nil, fmt.Errorf("generate a host key: %w", err)
	}
	return ssh.NewSignerFromKey(private)
}

// writeFiles writes what a client needs to find and to trust the hosts.
func (f *Fleet) writeFiles() error {
	var known, config strings.Builder
	for _, h := range f.hosts {
		h.describe(&known, &config)
	}
	fmt.Fprintf(&config, "Host *\n"+
		"\tPort %d\n\tUser %s\n\tIdentityFile %s\n\tIdentitiesOnly yes\n\tIdentityAgent none\n"+
		"\tUserKnownHostsFile %s\n\tGlobalKnownHostsFile /dev/null\n\tStrictHostKeyChecking yes\n",
		f.port, User, configQuote(f.ClientKey()), configQuote(f.KnownHosts()))
	if err := os.WriteFile(f.KnownHosts(), []byte(known.String()), 0o600); err != nil {
		return err
	}
	return os.WriteFile(f.SSHConfig(), []byte(config.String()), 0o600)
}

func (f *Fleet) writeClientKey() error {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return fmt.Errorf("generate the client key: %w", err)
	}
	if f.client, err = ssh.NewPublicKey(public); err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(private, "genv simulated fleet")
	if err != nil {
		return err
	}
	return os.WriteFile(f.ClientKey(), pem.EncodeToMemory(block), 0o600)
}

// describe adds the host to known_hosts, by name and by address, and to
// ssh_config.
func (h *Host) describe(known, config *strings.Builder) {
	port := strconv.Itoa(h.fleet.port)
	names := []string{net.JoinHostPort(h.name, port), net.JoinHostPort(h.address, port)}
	fmt.Fprintln(known, knownhosts.Line(names, h.key.PublicKey()))
	fmt.Fprintf(config, "Host %s\n\tHostName %s\n", h.name, h.address)
}

// configQuote quotes a path for ssh_config where it holds a blank. "%" begins
// a token there.
func configQuote(path string) string {
	path = strings.ReplaceAll(path, "%", "%%")
	if strings.ContainsAny(path, " \t") {
		return `"` + path + `"`
	}
	return path
}
