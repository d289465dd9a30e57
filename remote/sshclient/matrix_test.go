package sshclient_test

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// client is a row of the matrix: lines of ssh_config, and what comes of them.
type client struct {
	lines string       // separated by "; "
	fails remote.Class // empty: the host is reached
	says  string       // in the error
	lacks bool         // ssh reaches the host, by an algorithm that the SSH library doesn't have
	tries bool         // ssh does not try all that ssh_config allows
}

// servers are what an sshd allows, and the clients that try it. KEY is the folder of
// its other host keys, whose names are their types.
var servers = map[string]struct {
	sshd    string // lines of sshd_config, separated by "; "
	key     string // the type of a host key that it has instead of ed25519
	known   string // of known_hosts: "HOST " is followed by the name of the host; empty: its key
	clients []client
}{
	"as installed": {clients: []client{
		{},
		{lines: "KexAlgorithms +diffie-hellman-group1-sha1; Ciphers +3des-cbc; MACs +hmac-sha1-96; HostKeyAlgorithms +ssh-rsa; PubkeyAcceptedAlgorithms +ssh-rsa"},
		{lines: "Ciphers aes256-gcm@openssh.com; KexAlgorithms ecdh-sha2-nistp384; HostKeyAlgorithms ssh-ed25519"},
		{lines: "Ciphers aes192-ctr; MACs hmac-sha2-512-etm@openssh.com; KexAlgorithms diffie-hellman-group16-sha512"},
		{lines: "Ciphers ^aes128-ctr; MACs ^hmac-sha1; KexAlgorithms ^diffie-hellman-group14-sha256"},
		{lines: "Ciphers -aes*; MACs -*sha1*,umac*; KexAlgorithms -diffie-hellman*"},
		{lines: "Ciphers aes128-cbc", fails: remote.Configuration, says: "Ciphers"},
		{lines: "MACs hmac-sha1-96; Ciphers aes128-ctr", fails: remote.Configuration, says: "MACs"},
		{lines: "KexAlgorithms diffie-hellman-group1-sha1", fails: remote.Configuration, says: "KexAlgorithms"},
		{lines: "HostKeyAlgorithms ecdsa-sha2-nistp256", fails: remote.Configuration, says: "HostKeyAlgorithms"},
		{lines: "HostKeyAlgorithms rsa-sha2-512,rsa-sha2-256", fails: remote.Configuration, says: "the host has ssh-ed25519"},
		{lines: "KexAlgorithms sntrup761x25519-sha512@openssh.com", fails: remote.Configuration, says: "genv has none of", lacks: true},
		{lines: "MACs umac-64-etm@openssh.com; Ciphers aes128-ctr", fails: remote.Configuration, says: "genv has none of", lacks: true},
		{lines: "PubkeyAcceptedAlgorithms ssh-ed25519"},
		{lines: "PubkeyAcceptedAlgorithms -ssh-ed25519", fails: remote.Auth, says: "PubkeyAcceptedAlgorithms"},
		{lines: "PubkeyAcceptedKeyTypes ecdsa*", fails: remote.Auth, says: "PubkeyAcceptedAlgorithms"},
		{lines: "PubkeyAuthentication no", fails: remote.Configuration, says: "genv logs in with a key"},
		{lines: "PreferredAuthentications password,keyboard-interactive", fails: remote.Configuration, says: "genv logs in with a key"},
		{lines: "PreferredAuthentications password,publickey"},
		{lines: "RequiredRSASize 16384"},
		{lines: "Match exec true; Ciphers aes128-cbc", fails: remote.Configuration, says: "Ciphers"},
		{lines: "Match exec true; KexAlgorithms ecdh-sha2-nistp521"},
	}},
	"group16-sha512 alone": {sshd: "KexAlgorithms diffie-hellman-group16-sha512", clients: []client{
		{},
		{lines: "KexAlgorithms -diffie-hellman-group16*", fails: remote.Configuration, says: "the host has diffie-hellman-group16-sha512"},
	}},
	"group-exchange-sha256 alone": {sshd: "KexAlgorithms diffie-hellman-group-exchange-sha256", clients: []client{{}}},
	"group14-sha1 alone": {sshd: "KexAlgorithms diffie-hellman-group14-sha1", clients: []client{
		{fails: remote.Configuration, says: "KexAlgorithms"},
		{lines: "KexAlgorithms +diffie-hellman-group14-sha1"},
	}},
	"group1-sha1 alone": {sshd: "KexAlgorithms diffie-hellman-group1-sha1", clients: []client{
		{fails: remote.Configuration, says: "diffie-hellman-group1-sha1"},
		{lines: "KexAlgorithms +diffie-hellman-group1-sha1"},
		{lines: "KexAlgorithms +diffie-hellman-group14-sha1", fails: remote.Configuration},
	}},
	"group18-sha512 alone": {sshd: "KexAlgorithms diffie-hellman-group18-sha512", clients: []client{
		{fails: remote.Configuration, says: "diffie-hellman-group18-sha512", lacks: true},
	}},
	"aes128-cbc alone": {sshd: "Ciphers aes128-cbc", clients: []client{
		{fails: remote.Configuration, says: "the host has aes128-cbc, which Ciphers"},
		{lines: "Ciphers +aes128-cbc"},
		{lines: "Host other; Ciphers +aes128-cbc", fails: remote.Configuration},
	}},
	"3des-cbc alone": {sshd: "Ciphers 3des-cbc", clients: []client{
		{fails: remote.Configuration, says: "3des-cbc"},
		{lines: "Ciphers +3des-cbc"},
	}},
	"hmac-sha1-96 alone": {sshd: "Ciphers aes128-ctr; MACs hmac-sha1-96", clients: []client{
		{fails: remote.Configuration, says: "MACs"},
		{lines: "MACs +hmac-sha1-96"},
	}},
	"an RSA host key that signs with SHA-1 alone": {key: "rsa", sshd: "HostKeyAlgorithms ssh-rsa", clients: []client{
		{fails: remote.Configuration, says: "the host has ssh-rsa, which HostKeyAlgorithms"},
		{lines: "HostKeyAlgorithms +ssh-rsa"},
		{lines: "HostKeyAlgorithms +ssh-rsa; RequiredRSASize 2049", fails: remote.HostKey, says: "2048 bits"},
	}},
	"an RSA host key": {key: "rsa", clients: []client{
		{},
		{lines: "RequiredRSASize 2048"},
		{lines: "RequiredRSASize 4096", fails: remote.HostKey, says: "RequiredRSASize in ssh_config is 4096"},
		{lines: "RequiredRSASize 4096; StrictHostKeyChecking no", fails: remote.HostKey, says: "2048 bits"},
		{lines: "HostKeyAlgorithms -rsa*", fails: remote.Configuration, says: "HostKeyAlgorithms"},
		{lines: "HostKeyAlgorithms rsa-sha2-256"},
	}},
	"a host key of another type than the known one": {key: "ecdsa", known: "HOST ed25519", clients: []client{
		{fails: remote.HostKeyChanged},
		{lines: "HostKeyAlgorithms ecdsa*", fails: remote.HostKeyChanged},
		{lines: "StrictHostKeyChecking yes", fails: remote.HostKeyChanged},
	}},
	"user keys with rsa-sha2-512 alone": {sshd: "PubkeyAcceptedAlgorithms rsa-sha2-512", clients: []client{
		{fails: remote.Auth},
		{lines: "IdentityFile KEY/user"},
		{lines: "IdentityFile KEY/user; PubkeyAcceptedAlgorithms rsa-sha2-256", fails: remote.Auth},
		{lines: "IdentityFile KEY/user; RequiredRSASize 2048"},
		{lines: "IdentityFile KEY/user; RequiredRSASize 3072", fails: remote.Auth, says: "RequiredRSASize in ssh_config is 3072"},
	}},
	"user keys with SHA-1 alone": {sshd: "PubkeyAcceptedAlgorithms ssh-rsa", clients: []client{
		{lines: "IdentityFile KEY/user", fails: remote.Auth},
		{lines: "IdentityFile KEY/user; PubkeyAcceptedAlgorithms +ssh-rsa", tries: true}, // the server says that it takes rsa-sha2-512
		{lines: "IdentityFile KEY/user; PubkeyAcceptedAlgorithms ^ssh-rsa"},
	}},
	"a host certificate": {sshd: "HostCertificate KEY/certified-cert.pub", key: "certified", known: "@cert-authority HOST ca", clients: []client{
		{},
		{lines: "CASignatureAlgorithms ssh-ed25519"},
		{lines: "CASignatureAlgorithms -ssh-ed25519", fails: remote.HostKey, says: "no key of"},
		{lines: "HostKeyAlgorithms ssh-ed25519", fails: remote.HostKey, says: "no key of"},
		{lines: "HostKeyAlgorithms ssh-ed25519-cert-v01@openssh.com"},
	}},
	"two host keys, of which the preferred one is stale in known_hosts": {
		sshd: "HostKey KEY/ecdsa", key: "ed25519", known: "HOST ecdsa; HOST certified",
		clients: []client{{fails: remote.HostKeyChanged}, {lines: "HostKeyAlgorithms -ssh-ed25519*"}, {lines: "HostKeyAlgorithms -ecdsa*", fails: remote.HostKeyChanged}},
	},
	"two host keys, of which one is known": {sshd: "HostKey KEY/ecdsa", key: "ed25519", known: "HOST ecdsa", clients: []client{
		{},
		{lines: "HostKeyAlgorithms -ecdsa*", fails: remote.HostKeyChanged},
		{lines: "HostKeyAlgorithms ssh-ed25519,ecdsa-sha2-nistp256", fails: remote.HostKeyChanged}, // the list decides on the order
		{lines: "HostKeyAlgorithms ^ssh-ed25519", fails: remote.HostKeyChanged},
		{lines: "HostKeyAlgorithms ecdsa-sha2-nistp256,ssh-ed25519"},
		{lines: "HostKeyAlgorithms +ssh-rsa"},
	}},
	"a host certificate of an RSA authority": {sshd: "HostCertificate KEY/by-rsa-cert.pub", key: "by-rsa", known: "@cert-authority HOST rsa", clients: []client{
		{},
		{lines: "CASignatureAlgorithms rsa-sha2-512"},
		{lines: "CASignatureAlgorithms rsa-sha2-256", fails: remote.HostKey},
		{lines: "CASignatureAlgorithms -rsa*", fails: remote.HostKey},
	}},
	"a host certificate, and a known key": {
		sshd: "HostCertificate KEY/certified-cert.pub", key: "certified", known: "@cert-authority HOST ca; HOST certified",
		clients: []client{{}, {lines: "CASignatureAlgorithms -ssh-ed25519"}, {lines: "HostKeyAlgorithms -*cert*"}},
	},
}

// TestMatrix holds what this client reaches against the table, and against ssh: it uses nothing that ssh would not use,
// and reaches what ssh reaches unless the library lacks the algorithm.
func TestMatrix(t *testing.T) {
	keys := matrixKeys(t)
	for name, tt := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := matrixServer(t, keys, tt.sshd, tt.key, tt.known)
			for _, row := range tt.clients {
				t.Run(row.lines, func(t *testing.T) {
					t.Parallel()
					file := s.config(t, strings.Split(strings.ReplaceAll(row.lines, "KEY", keys), "; ")...)
					c := newClient(t, sshclient.Options{ConfigFile: file})
					_, err := c.Run(t.Context(), gpu, sh("true"))
					requireClass(t, row.fails, err, row.says)
					said, sshErr := opensshRuns(t, file)
					if (row.fails == "" || row.lacks) && !row.tries {
						require.NoError(t, sshErr, "ssh refuses what was reached: %s", said)
					} else {
						require.Error(t, sshErr, "ssh reaches the host")
					}
				})
			}
		})
	}
}

// opensshRuns has ssh do the same.
func opensshRuns(t *testing.T, file string) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	said, err := exec.CommandContext(ctx, "ssh", "-F", file, "-o", "BatchMode=yes", "gpu", "true").CombinedOutput()
	return string(said), err
}

// matrixKeys is a folder of keys: host keys by type, one with a certificate, and an RSA key of the user.
func matrixKeys(t *testing.T) string {
	dir := t.TempDir()
	for name, options := range map[string]string{
		"ed25519": "-t ed25519", "rsa": "-t rsa -b 2048", "ecdsa": "-t ecdsa", "certified": "-t ed25519", "by-rsa": "-t ed25519", "ca": "-t ed25519", "user": "-t rsa -b 2048",
	} {
		run(t, "ssh-keygen", append(strings.Fields(options), "-q", "-N", "", "-f", dir+"/"+name)...)
	}
	run(t, "ssh-keygen", "-q", "-s", dir+"/ca", "-I", "host", "-h", dir+"/certified.pub")
	run(t, "ssh-keygen", "-q", "-s", dir+"/rsa", "-I", "host", "-h", dir+"/by-rsa.pub")
	return dir
}

// matrixServer starts an sshd with the lines given. With a key, that one is its host key.
func matrixServer(t *testing.T, keys, lines, key, known string) *sshd {
	proctest.NeedPrograms(t, "ssh")
	s := &sshd{dir: t.TempDir(), address: freshAddress()}
	s.port = freePort(t, s.address)
	if key != "" {
		s.hostKey = keys + "/" + key
		known = cmp.Or(known, "HOST "+key)
	}
	s.prepare(t, strings.Split(strings.ReplaceAll(lines, "KEY", keys), "; ")...)
	s.write(t, "authorized", s.read(t, "authorized")+proctest.ReadText(t, keys+"/user.pub"))
	var text strings.Builder
	for line := range strings.SplitSeq(known, "; ") {
		if at := strings.LastIndexByte(line, ' '); at >= 0 {
			name := strings.ReplaceAll(line[:at], "HOST", fmt.Sprintf("[%s]:%d", s.address, s.port))
			fmt.Fprintf(&text, "%s %s", name, proctest.ReadText(t, keys+"/"+line[at+1:]+".pub"))
		}
	}
	if known != "" {
		s.write(t, "known_hosts", text.String())
	}
	return s
}

// Each hop of a jump has the restrictions of its own block.
func TestMatrixOfJumpHosts(t *testing.T) {
	j := startJumps(t)
	for name, tt := range map[string]struct {
		lines []string
		fails remote.Class
		says  string
	}{
		"allowed on both":          {lines: []string{"Host gpu", " ProxyJump first", " Ciphers aes256-ctr", "Host first", " Ciphers aes128-gcm@openssh.com"}},
		"excluded on the jump":     {lines: []string{"Host gpu", " ProxyJump first", "Host first", " Ciphers aes128-cbc"}, fails: remote.Configuration, says: "jump host first"},
		"excluded on the host":     {lines: []string{"Host gpu", " ProxyJump first", " MACs hmac-sha1-96", " Ciphers aes128-ctr"}, fails: remote.Configuration, says: "MACs"},
		"excluded on another host": {lines: []string{"Host gpu", " ProxyJump first", "Host other", " PubkeyAuthentication no"}},
		"no key for the jump":      {lines: []string{"Host gpu", " ProxyJump first", "Host first", " PubkeyAuthentication no"}, fails: remote.Configuration, says: "PubkeyAuthentication no"},
	} {
		t.Run(name, func(t *testing.T) {
			file := j.config(t, tt.lines...)
			_, err := newClient(t, sshclient.Options{ConfigFile: file}).Run(t.Context(), gpu, sh("true"))
			said, sshErr := opensshRuns(t, file)
			requireClass(t, tt.fails, err, tt.says)
			require.Equal(t, err == nil, sshErr == nil, said)
		})
	}
}
