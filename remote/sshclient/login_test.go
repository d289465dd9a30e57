package sshclient_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// key makes a login key that the server accepts, with ssh-keygen's options.
func (s *sshd) key(t testing.TB, name string, options ...string) string {
	t.Helper()
	run(t, "ssh-keygen", append([]string{"-q", "-C", name, "-f", s.file(name)}, options...)...)
	s.write(t, "authorized", s.read(t, "authorized")+s.read(t, name+".pub"))
	return s.file(name)
}

// agent runs an ssh-agent with the keys given, until the test ends.
func (s *sshd) agent(t testing.TB, keys ...string) string {
	t.Helper()
	socket := filepath.Join(proctest.PublicDir(t, 0o700), "s")
	proctest.Start(t, exec.Command("ssh-agent", "-D", "-a", socket))
	require.Eventually(t, func() bool { // the socket is there a moment before the agent listens
		conn, err := net.Dial("unix", socket)
		if err == nil {
			err = conn.Close()
		}
		return err == nil
	}, 30*time.Second, 5*time.Millisecond)
	for _, key := range keys {
		add := exec.Command("ssh-add", "-q", key)
		add.Env = append(os.Environ(), "SSH_AUTH_SOCK="+socket)
		proctest.Output(t, add)
	}
	return socket
}

func TestKeyFormats(t *testing.T) {
	s := startSSHD(t)
	for name, options := range map[string][]string{
		"ed25519": {"-t", "ed25519", "-N", ""}, "rsa-openssh": {"-t", "rsa", "-b", "1024", "-N", ""},
		"rsa-pem": {"-t", "rsa", "-b", "1024", "-m", "PEM", "-N", ""}, "rsa-pkcs8": {"-t", "rsa", "-b", "1024", "-m", "PKCS8", "-N", ""},
		"ecdsa-256": {"-t", "ecdsa", "-b", "256", "-N", ""}, "ecdsa-521-pem": {"-t", "ecdsa", "-b", "521", "-m", "PEM", "-N", ""},
		"ecdsa-384-pkcs8": {"-t", "ecdsa", "-b", "384", "-m", "PKCS8", "-N", ""},
	} {
		t.Run(name, func(t *testing.T) {
			key := s.key(t, name, options...)
			c := newClient(t, sshclient.Options{ConfigFile: s.only(t, key)})
			runs(t, c, gpu, sh("true"))
		})
	}
}

func TestLockedKeys(t *testing.T) {
	s := startSSHD(t)
	for name, options := range map[string][]string{
		"openssh": {"-t", "ed25519"}, "pem": {"-t", "rsa", "-b", "1024", "-m", "PEM"},
	} {
		key := s.key(t, name, append(options, "-N", "secret", "-a", "1")...)
		config := s.only(t, key)
		t.Run(name+" asked once for all hosts", func(t *testing.T) {
			asked := 0
			c := newClient(t, sshclient.Options{ConfigFile: config, Prompt: func(question string) ([]byte, error) {
				asked++
				require.Contains(t, question, key)
				return []byte("secret"), nil
			}})
			for _, host := range []string{"gpu", "gpu-1", "gpu-2"} {
				runs(t, c, remote.Host{Name: host}, sh("true"))
			}
			require.Equal(t, 1, asked)
		})
		t.Run(name+" without a terminal", func(t *testing.T) {
			c := newClient(t, sshclient.Options{ConfigFile: config})
			fails(t, c, gpu, sh("true"), remote.Auth, "locked")
		})
		t.Run(name+" in BatchMode", func(t *testing.T) {
			c := newClient(t, sshclient.Options{ConfigFile: s.only(t, key, "BatchMode yes"), Prompt: func(string) ([]byte, error) {
				t.Error("somebody was asked")
				return []byte("secret"), nil
			}})
			fails(t, c, gpu, sh("true"), remote.Auth, "BatchMode")
		})
		t.Run(name+" and a wrong passphrase", func(t *testing.T) {
			c := newClient(t, sshclient.Options{ConfigFile: config, Prompt: func(string) ([]byte, error) { return []byte("wrong"), nil }})
			fails(t, c, gpu, sh("true"), remote.Auth)
		})
		t.Run(name+" and no answer", func(t *testing.T) {
			c := newClient(t, sshclient.Options{ConfigFile: config, Prompt: func(string) ([]byte, error) { return nil, errors.New("no terminal") }})
			fails(t, c, gpu, sh("true"), remote.Auth)
		})
	}
}

// only is a configuration in which a key file, and lines, are all there is.
func (s *sshd) only(t testing.TB, key string, lines ...string) string {
	t.Helper()
	name := s.config(t, append([]string{"IdentityFile " + key, "IdentitiesOnly yes"}, lines...)...)
	text := proctest.ReadFile(t, name)
	require.NoError(t, os.WriteFile(name, []byte(strings.ReplaceAll(string(text), "IdentityFile "+s.file("id")+"\n", "")), 0o600))
	return name
}

func TestAgents(t *testing.T) {
	s := startSSHD(t)
	held := s.key(t, "held", "-t", "ed25519", "-N", "")
	rsa := s.key(t, "rsa", "-t", "rsa", "-b", "1024", "-N", "")
	var strangers []string
	for _, name := range []string{"s1", "s2", "s3", "s4", "s5", "s6", "s7"} {
		run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", s.file(name))
		strangers = append(strangers, s.file(name))
	}
	for name, tt := range map[string]struct {
		keys   []string
		only   string // IdentityFile
		lines  []string
		remove bool // the private key files go away
		fails  remote.Class
	}{
		"a key that only the agent has":                       {keys: []string{held}, only: "none", lines: []string{"IdentitiesOnly no"}},
		"an RSA key in the agent":                             {keys: []string{rsa}, only: "none", lines: []string{"IdentitiesOnly no"}},
		"IdentitiesOnly leaves the agent's others out":        {keys: []string{held}, only: s.file("s1"), fails: remote.Auth},
		"IdentitiesOnly picks one of many by its public file": {keys: append(strangers[:7:7], held), only: held + ".pub"},
		"a configured key comes before the agent's seven":     {keys: append(strangers[:7:7], held), only: held, lines: []string{"IdentitiesOnly no"}},
		"six wrong keys are where servers stop":               {keys: append(strangers[:7:7], held), only: "none", lines: []string{"IdentitiesOnly no"}, fails: remote.Auth},
	} {
		t.Run(name, func(t *testing.T) {
			socket := s.agent(t, tt.keys...)
			lines := append([]string{"IdentityAgent " + socket}, tt.lines...)
			config := write(t, strings.Join(lines, "\n")+"\n"+proctest.ReadText(t, s.only(t, tt.only)))
			c := newClient(t, sshclient.Options{ConfigFile: config})
			_, err := c.Run(t.Context(), gpu, sh("true"))
			requireClass(t, tt.fails, err)
		})
	}
	t.Run("an agent that is gone", func(t *testing.T) {
		c := newClient(t, sshclient.Options{ConfigFile: write(t, "IdentityAgent /nonexistent/agent\n"+proctest.ReadText(t, s.only(t, held)))})
		proctest.Try(c.Run(t.Context(), gpu, sh("true"))).OK(t, "the key file serves")
	})
}

func write(t testing.TB, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestCertificates(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca")
	run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", ca)
	s := startSSHD(t, "TrustedUserCAKeys "+ca+".pub")
	for name, kind := range map[string]string{"c-ed25519": "ed25519", "c-rsa": "rsa", "c-ecdsa": "ecdsa"} {
		run(t, "ssh-keygen", "-q", "-t", kind, "-N", "", "-f", s.file(name))
		run(t, "ssh-keygen", "-q", "-s", ca, "-I", "id", "-n", "root", s.file(name)+".pub")
		t.Run(name+" next to its key", func(t *testing.T) {
			c := newClient(t, sshclient.Options{ConfigFile: s.only(t, s.file(name))})
			runs(t, c, gpu, sh("true"))
		})
		t.Run(name+" as CertificateFile, the key in the agent", func(t *testing.T) {
			socket := s.agent(t, s.file(name))
			require.NoError(t, os.Rename(s.file(name)+"-cert.pub", s.file(name)+".crt"))
			c := newClient(t, sshclient.Options{ConfigFile: write(t, "IdentityAgent "+socket+"\nCertificateFile "+s.file(name)+".crt\n"+proctest.ReadText(t, s.only(t, s.file(name)+".pub")))})
			runs(t, c, gpu, sh("true"))
		})
	}
	run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", s.file("other"))
	run(t, "ssh-keygen", "-q", "-s", ca, "-I", "id", "-n", "nobody", s.file("other")+".pub")
	t.Run("for another user", func(t *testing.T) {
		c := newClient(t, sshclient.Options{ConfigFile: s.only(t, s.file("other"))})
		fails(t, c, gpu, sh("true"), remote.Auth)
	})
}

// lock puts a login key behind the passphrase "secret" next to the fake's own. The key was made with `ssh-keygen -a 1`:
// with the usual 16 rounds of its key derivation, the race detector needs many seconds for each use.
func (f *fake) lock(name string) string {
	text := proctest.ReadFile(f.t, "testdata/locked_ed25519")
	var locked *ssh.PassphraseMissingError
	_, err := ssh.ParseRawPrivateKey(text)
	require.ErrorAs(f.t, err, &locked)
	f.also = locked.PublicKey
	file := filepath.Join(f.dir, name)
	require.NoError(f.t, os.WriteFile(file, text, 0o600))
	return file
}

func TestPassphraseAfterConnectTimeout(t *testing.T) {
	var key string
	f := startFake(t, func(f *fake) { key = f.lock("locked"); require.NoError(t, os.Remove(filepath.Join(f.dir, "id"))) })
	c := newClient(t, sshclient.Options{
		ConfigFile: f.config("IdentityFile " + key), ConnectTimeout: 2 * time.Second,
		Prompt: func(string) ([]byte, error) { time.Sleep(2200 * time.Millisecond); return []byte("secret"), nil },
	})
	runs(t, c, gpu, snapshot)
}

func TestCloseDuringPassphrasePrompt(t *testing.T) {
	var key string
	f := startFake(t, func(f *fake) { key = f.lock("locked") })
	asked, answer := make(chan struct{}), make(chan struct{})
	c := newClient(t, sshclient.Options{ConfigFile: f.config("IdentityFile " + key), Prompt: func(string) ([]byte, error) {
		close(asked)
		<-answer
		return []byte("secret"), nil
	}})
	var running sync.WaitGroup
	running.Go(func() {
		_, err := c.Run(context.Background(), gpu, snapshot)
		requireClass(t, remote.Cancelled, err)
	})
	<-asked
	c.Close()
	running.Wait()
	close(answer)
}

func TestWrongPassphraseTriesOtherKeys(t *testing.T) {
	var key string
	f := startFake(t, func(f *fake) { key = f.lock("locked") })
	c := newClient(t, sshclient.Options{ConfigFile: f.config("IdentityFile " + key), Prompt: func(string) ([]byte, error) { return []byte("wrong"), nil }})
	runs(t, c, gpu, snapshot)
}

// TestPeer: names that lead to one sshd have one Peer, whatever ssh_config makes of them; another sshd has another.
func TestPeer(t *testing.T) {
	f, other := startFake(t, nil), startFake(t, nil)
	key := ssh.FingerprintSHA256(f.key.PublicKey())
	c := newClient(t, sshclient.Options{ConfigFile: f.config(fmt.Sprintf("Host alias\n HostName %s\n Port %d", f.address().IP, f.address().Port))})
	direct := remote.Peer{Address: f.address().String(), HostKey: key}
	for _, tt := range []struct {
		name string
		host remote.Host
		want remote.Peer
	}{
		{"by its name", gpu, direct},
		{"by an alias of ssh_config", remote.Host{Name: "alias"}, direct},
		{"by its address", remote.Host{Name: f.address().IP.String(), Port: f.address().Port}, direct},
		{"by an address in hosts.yaml", remote.Host{Name: "elsewhere", Address: f.address().IP.String(), Port: f.address().Port}, direct},
		{"as another user", remote.Host{Name: "gpu-2", User: "bob"}, direct},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, known := c.Peer(tt.host)
			require.False(t, known, "before it was connected to")
			runs(t, c, tt.host, snapshot)
			peer, known := c.Peer(tt.host)
			require.True(t, known)
			require.Equal(t, tt.want, peer)
		})
	}
	c = newClient(t, sshclient.Options{ConfigFile: other.config()})
	runs(t, c, gpu, snapshot)
	peer, known := c.Peer(gpu)
	require.True(t, known)
	require.NotEqual(t, direct.Address, peer.Address)
	require.NotEqual(t, direct.HostKey, peer.HostKey)
}

// Behind jump hosts and proxies the names stay, with the way that leads there.
func TestPeerBehindJumpHost(t *testing.T) {
	j := startJumps(t)
	c := newClient(t, sshclient.Options{ConfigFile: j.config(t, "Host gpu-a gpu-b", " ProxyJump first", "Host gpu-c", " ProxyJump second", "Host gpu-d", " ProxyJump none")})
	peers := map[string]remote.Peer{}
	for _, name := range []string{"gpu-a", "gpu-b", "gpu-c", "gpu-d"} {
		runs(t, c, remote.Host{Name: name}, sh("true"))
		peer, known := c.Peer(remote.Host{Name: name})
		require.True(t, known)
		peers[name] = peer
	}
	require.Equal(t, peers["gpu-a"], peers["gpu-b"])
	require.Equal(t, "jump first", peers["gpu-a"].Through)
	require.NotEqual(t, peers["gpu-a"], peers["gpu-c"], "an address means something else behind another jump host")
	require.NotEqual(t, peers["gpu-a"], peers["gpu-d"])
}
