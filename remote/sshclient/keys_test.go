package sshclient_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh/agent"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// agentConfig reaches the server as "gpu" with an agent, and without the usual key.
func (s *sshd) agentConfig(t testing.TB, socket string, lines ...string) string {
	t.Helper()
	if len(lines) == 0 {
		lines = []string{"IdentityFile none"}
	}
	text := fmt.Sprintf(`%s
IdentityAgent %s
Host gpu gpu-*
  HostName %s
  Port %d
Host *
  User root
  UserKnownHostsFile %s
  GlobalKnownHostsFile /dev/null
`, strings.Join(lines, "\n"), socket, s.address, s.port, s.file("known_hosts"))
	name := fmt.Sprintf("config-%d", lastAddress.Add(1))
	s.write(t, name, text)
	return s.file(name)
}

// strangers is an agent with so many keys that no server knows.
func strangers(t testing.TB, count int) agent.Agent {
	t.Helper()
	keys := agent.NewKeyring()
	for range count {
		_, private, err := ed25519.GenerateKey(rand.Reader)
		require.NoError(t, err)
		require.NoError(t, keys.Add(agent.AddedKey{PrivateKey: private}))
	}
	return keys
}

// TestManyKeys: keys are offered until the server has had enough of them.
func TestManyKeys(t *testing.T) {
	for name, tt := range map[string]struct {
		tries, strangers int
		fails            remote.Class
	}{
		"the server takes six":                    {tries: 6, strangers: 5},
		"the right one is the seventh":            {tries: 6, strangers: 6, fails: remote.Auth},
		"a patient server":                        {tries: 20, strangers: 19},
		"a patient server, and the right one":     {tries: 20, strangers: 20, fails: remote.Auth},
		"more than the SSH library offers itself": {tries: 100, strangers: 80},
		"a strict server":                         {tries: 1, strangers: 1, fails: remote.Auth},
	} {
		t.Run(name, func(t *testing.T) {
			s := startSSHD(t, fmt.Sprintf("MaxAuthTries %d", tt.tries), "LoginGraceTime 60")
			config := s.agentConfig(t, testfleet.ServeAgent(t, strangers(t, tt.strangers)), "IdentityFile "+s.file("id"))
			_, err := newClient(t, sshclient.Options{ConfigFile: config}).Run(t.Context(), gpu, sh("true"))
			requireClass(t, tt.fails, err, "IdentitiesOnly yes", "tried ssh-ed25519 SHA256:")
		})
	}
}

// TestRSAAlgorithms: sshd says that it knows algorithms which its PubkeyAcceptedAlgorithms then refuses.
func TestRSAAlgorithms(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca")
	run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", ca)
	for _, algorithm := range []string{"rsa-sha2-512", "rsa-sha2-256"} {
		s := startSSHD(t, "TrustedUserCAKeys "+ca+".pub", "PubkeyAcceptedAlgorithms "+algorithm+","+algorithm+"-cert-v01@openssh.com")
		plain := s.key(t, "plain", "-t", "rsa", "-b", "1024", "-N", "")
		certified := s.file("certified")
		run(t, "ssh-keygen", "-q", "-t", "rsa", "-b", "1024", "-N", "", "-f", certified)
		run(t, "ssh-keygen", "-q", "-s", ca, "-I", "id", "-n", "root", certified+".pub")
		for name, config := range map[string]string{
			"key file":                   s.only(t, plain),
			"key in the agent":           s.agentConfig(t, s.agent(t, plain)),
			"certificate":                s.only(t, certified),
			"certificate in the agent":   s.agentConfig(t, s.agent(t, certified)),
			"certificate, key in agent":  s.agentConfig(t, s.agent(t, certified), "IdentityFile none", "CertificateFile "+certified+"-cert.pub"),
			"after other keys":           s.agentConfig(t, testfleet.ServeAgent(t, strangers(t, 3)), "IdentityFile "+plain),
			"after a key that is locked": s.only(t, s.file("id"), "IdentityFile "+plain),
		} {
			t.Run(algorithm+" "+name, func(t *testing.T) {
				runs(t, newClient(t, sshclient.Options{ConfigFile: config}), gpu, sh("true"))
			})
		}
	}
	t.Run("SHA-1 alone", func(t *testing.T) {
		s := startSSHD(t, "PubkeyAcceptedAlgorithms ssh-rsa")
		fails(t, newClient(t, sshclient.Options{ConfigFile: s.only(t, s.key(t, "plain", "-t", "rsa", "-b", "1024", "-N", ""))}), gpu, sh("true"), remote.Auth)
	})
}

// TestCertificatesAndAgents: where the certificate is, and where its private key.
func TestCertificatesAndAgents(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca")
	run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", ca)
	s := startSSHD(t, "TrustedUserCAKeys "+ca+".pub", "AuthorizedKeysFile none")
	signed := func(name string) (key, certificate string) {
		run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", s.file(name))
		run(t, "ssh-keygen", "-q", "-s", ca, "-I", "id", "-n", "root", s.file(name)+".pub")
		return s.file(name), s.file(name) + "-cert.pub"
	}
	key, certificate := signed("key")
	elsewhere, elsewhereCertificate := signed("elsewhere")
	require.NoError(t, os.Rename(elsewhereCertificate, s.file("elsewhere.crt")))
	elsewhereCertificate = s.file("elsewhere.crt")
	withCertificate, withoutIt := s.agent(t, key), s.agent(t, elsewhere)
	for name, tt := range map[string]struct {
		config string
		fails  remote.Class
	}{
		"the agent has both":                             {config: s.agentConfig(t, withCertificate)},
		"the agent has the key":                          {config: s.agentConfig(t, withoutIt), fails: remote.Auth},
		"CertificateFile, and no IdentityFile":           {config: s.agentConfig(t, withoutIt, "IdentityFile none", "CertificateFile "+elsewhereCertificate)},
		"CertificateFile, and another IdentityFile":      {config: s.agentConfig(t, withoutIt, "IdentityFile "+s.file("id"), "CertificateFile "+elsewhereCertificate)},
		"IdentitiesOnly leaves out the key":              {config: s.agentConfig(t, withoutIt, "IdentityFile none", "IdentitiesOnly yes", "CertificateFile "+elsewhereCertificate), fails: remote.Auth},
		"IdentitiesOnly, and its public key":             {config: s.agentConfig(t, withoutIt, "IdentityFile "+elsewhere+".pub", "IdentitiesOnly yes", "CertificateFile "+elsewhereCertificate)},
		"CertificateFile and its key file":               {config: s.agentConfig(t, "none", "IdentityFile "+elsewhere, "CertificateFile "+elsewhereCertificate)},
		"the certificate next to its key":                {config: s.agentConfig(t, "none", "IdentityFile "+key)},
		"no certificate next to it is used with another": {config: s.agentConfig(t, "none", "IdentityFile "+key, "CertificateFile "+elsewhereCertificate), fails: remote.Auth},
		"the certificate as IdentityFile":                {config: s.agentConfig(t, withCertificate, "IdentityFile "+certificate, "IdentitiesOnly yes")},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newClient(t, sshclient.Options{ConfigFile: tt.config}).Run(t.Context(), gpu, sh("true"))
			theirs := exec.Command("ssh", "-o", "BatchMode=yes", "-F", tt.config, "gpu", "true").Run()
			require.Equal(t, theirs == nil, err == nil, "ssh: %v, genv: %v", theirs, err)
			requireClass(t, tt.fails, err)
		})
	}
}

const debianPython = "/usr/bin/python3" // the one that Debian's python3-paramiko is for, whatever comes first in PATH

// TestServerWithoutServerSigAlgs: the server does not say which RSA signatures it
// knows, and ends the connection when it is offered one that it doesn't know.
func TestServerWithoutServerSigAlgs(t *testing.T) {
	proctest.Need(t, exec.Command(debianPython, "-c", "import paramiko").Run() == nil, "Debian's python3-paramiko")
	dir := t.TempDir()
	run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, "hostkey"))
	run(t, "ssh-keygen", "-q", "-t", "rsa", "-b", "1024", "-N", "", "-f", filepath.Join(dir, "id"))
	for name, tt := range map[string]struct {
		unknown []string
		fails   remote.Class
	}{
		"it knows all":            {},
		"it knows those of SHA-2": {unknown: []string{"ssh-rsa"}},
		"it knows rsa-sha2-256":   {unknown: []string{"ssh-rsa", "rsa-sha2-512"}},
		"it knows ssh-rsa":        {unknown: []string{"rsa-sha2-256", "rsa-sha2-512"}, fails: remote.Auth},
	} {
		t.Run(name, func(t *testing.T) {
			s := &sshd{dir: dir, address: freshAddress()}
			s.port = startParamiko(t, append([]string{s.address, s.file("hostkey"), strings.Fields(s.read(t, "id.pub"))[1]}, tt.unknown...))
			s.write(t, "known_hosts", fmt.Sprintf("[%s]:%d %s", s.address, s.port, s.read(t, "hostkey.pub")))
			_, err := newClient(t, sshclient.Options{ConfigFile: s.config(t)}).Run(t.Context(), gpu, sh("true"))
			requireClass(t, tt.fails, err)
		})
	}
}

func startParamiko(t *testing.T, arguments []string) (port int) {
	t.Helper()
	server := exec.Command(debianPython, append([]string{"testdata/without_server_sig_algs.py"}, arguments...)...)
	server.Stderr = os.Stderr
	stdin, stdout := proctest.StartPiped(t, server)
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = server.Wait()
	})
	proctest.Try(fmt.Fscan(stdout, &port)).OK(t)
	return port
}
