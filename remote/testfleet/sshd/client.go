package sshd

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/crypto/ssh"
)

// ClientKey is the path of the only private key that the hosts accept.
func (f *Fleet) ClientKey() string { return filepath.Join(f.Dir, "id_ed25519") }

// KnownHosts is the path of the file with all hosts' keys.
func (f *Fleet) KnownHosts() string { return filepath.Join(f.Dir, "known_hosts") }

// SSHConfig is the path of a file for `ssh -F` that knows all hosts by name,
// with their address, port, login, and the two files above.
func (f *Fleet) SSHConfig() string { return filepath.Join(f.Dir, "ssh_config") }

func (f *Fleet) writeClientFiles() error {
	client, err := writeKey(f.ClientKey())
	if err != nil {
		return err
	}
	host, err := writeKey(filepath.Join(f.Dir, "host_key"))
	if err != nil {
		return err
	}
	known, config := "", fmt.Sprintf(`Host *
	Port %d
	IdentityFile %s
	IdentitiesOnly yes
	IdentityAgent none
	UserKnownHostsFile %s
	GlobalKnownHostsFile /dev/null
	StrictHostKeyChecking yes
	BatchMode yes
	LogLevel ERROR
`, f.Port, f.ClientKey(), f.KnownHosts())
	for _, h := range f.hosts {
		known += fmt.Sprintf("[%s]:%d %s", h.Address, f.Port, host)
		config += fmt.Sprintf("Host %s\n\tHostName %s\n\tUser %s\n", h.Name, h.Address, h.User)
	}
	for path, text := range map[string]string{
		filepath.Join(f.Dir, "authorized_keys"): client,
		f.KnownHosts():                          known,
		f.SSHConfig():                           config,
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// writeKey writes a new private key in OpenSSH's format and returns the line of
// its public half.
func writeKey(path string) (string, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", err
	}
	block, err := ssh.MarshalPrivateKey(private, "genv test fleet")
	if err != nil {
		return "", err
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		return "", err
	}
	line := string(ssh.MarshalAuthorizedKey(key))
	return line, os.WriteFile(path, pem.EncodeToMemory(block), 0o600)
}
