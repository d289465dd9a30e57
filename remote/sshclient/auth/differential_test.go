package auth_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	cryptorand "crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/seed-3119e985/genv/remote/sshclient/auth"
	"github.com/seed-3119e985/genv/remote/sshclient/config"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// refusing is an SSH server that accepts no key, however many are offered.
func refusing(t *testing.T) (port string) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(cryptorand.Reader)
	require.NoError(t, err)
	hostKey := proctest.Try(ssh.NewSignerFromKey(private)).OK(t)
	server := &ssh.ServerConfig{MaxAuthTries: -1, PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) {
		return nil, errors.New("no key is accepted")
	}}
	server.AddHostKey(hostKey)
	listener := proctest.Try(net.Listen("tcp", "127.0.0.1:0")).OK(t)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			go func() {
				_, _, _, _ = ssh.NewServerConn(conn, server)
				_ = conn.Close()
			}()
		}
	}()
	_, port, err = net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	return port
}

// pair is a key with two certificates for it.
type pair struct {
	name         string
	private      crypto.Signer
	public       ssh.PublicKey
	certificates [2]*ssh.Certificate
	locked       *pem.Block // with a passphrase
}

func pairs(t *testing.T) (all []pair) {
	t.Helper()
	_, authority, err := ed25519.GenerateKey(cryptorand.Reader)
	require.NoError(t, err)
	ca := proctest.Try(ssh.NewSignerFromKey(authority)).OK(t)
	for i := range 5 {
		p := pair{name: fmt.Sprintf("k%d", i)}
		switch i {
		case 0:
			p.private, err = rsa.GenerateKey(cryptorand.Reader, 2048)
		case 1:
			p.private, err = ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader)
		default:
			_, p.private, err = ed25519.GenerateKey(cryptorand.Reader)
		}
		require.NoError(t, err)
		p.public = proctest.Try(ssh.NewPublicKey(p.private.Public())).OK(t)
		p.locked = locked(t, p.private)
		for n := range p.certificates {
			c := &ssh.Certificate{Key: p.public, Serial: uint64(n), CertType: ssh.UserCert, ValidPrincipals: []string{"x"}, ValidBefore: ssh.CertTimeInfinity}
			require.NoError(t, c.SignCert(cryptorand.Reader, ca))
			p.certificates[n] = c
		}
		all = append(all, p)
	}
	return all
}

// locked is the key with a passphrase, by one round of its key derivation instead of
// the usual 16, which take the race detector many seconds.
func locked(t *testing.T, private crypto.Signer) *pem.Block {
	t.Helper()
	block := proctest.Try(ssh.MarshalPrivateKey(private, "")).OK(t)
	file := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	proctest.Output(t, exec.Command("ssh-keygen", "-q", "-p", "-a", "1", "-P", "", "-N", "secret", "-f", file))
	text := proctest.ReadFile(t, file)
	block, _ = pem.Decode(text)
	return block
}

// world is a generated set of files and of keys in an agent.
type world struct {
	t      *testing.T
	r      *rand.Rand
	dir    string
	agent  agent.Agent
	config config.HostConfig
	named  map[string]ssh.PublicKey // what ssh calls by a name: "name" or "name cert"
	signs  map[string]bool          // names of files with a private key that needs no passphrase
}

func (w *world) often() bool  { return w.r.IntN(2) == 0 }
func (w *world) seldom() bool { return w.r.IntN(4) == 0 }

func (w *world) write(name string, content []byte) string {
	path := filepath.Join(w.dir, name)
	require.NoError(w.t, os.WriteFile(path, content, 0o600))
	return path
}

// privateFile writes the private key in one of its formats; one in PEM does not say its public key.
func (w *world) privateFile(p pair) {
	path := filepath.Join(w.dir, p.name)
	var block *pem.Block
	var err error
	switch w.r.IntN(4) {
	case 0:
		return
	case 1:
		block = p.locked
	case 2:
		block, err = ssh.MarshalPrivateKey(p.private, "")
		if key, ok := p.private.(*rsa.PrivateKey); ok {
			block = &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
		}
		w.signs[path] = true
	default:
		block, err = ssh.MarshalPrivateKey(p.private, "")
		w.signs[path] = true
	}
	require.NoError(w.t, err)
	w.write(p.name, pem.EncodeToMemory(block))
}

func (w *world) files(p pair) {
	path := filepath.Join(w.dir, p.name)
	w.privateFile(p)
	_, err := os.Stat(path)
	if err != nil || w.often() {
		w.write(p.name+".pub", ssh.MarshalAuthorizedKey(p.public))
	}
	w.named[path], w.named[path+".pub"] = p.public, p.public
	if w.often() {
		w.write(p.name+"-cert.pub", ssh.MarshalAuthorizedKey(p.certificates[0]))
	}
	w.named[path+" cert"] = p.certificates[0]
	if w.seldom() {
		crt := w.write(p.name+".crt", ssh.MarshalAuthorizedKey(p.certificates[w.r.IntN(2)]))
		w.named[crt+" cert"], _, _, _, err = ssh.ParseAuthorizedKey([]byte(proctest.ReadText(w.t, crt)))
		require.NoError(w.t, err)
		w.config.CertificateFiles = append(w.config.CertificateFiles, crt)
	}
	if !w.seldom() {
		w.config.IdentityFiles = append(w.config.IdentityFiles, path)
	}
	if w.seldom() {
		w.config.IdentityFiles = append(w.config.IdentityFiles, path+".pub")
	}
}

func (w *world) inAgent(p pair) {
	add := func(name string, certificate *ssh.Certificate) {
		require.NoError(w.t, w.agent.Add(agent.AddedKey{PrivateKey: p.private, Certificate: certificate, Comment: name}))
	}
	if w.often() {
		add("agent-"+p.name, nil)
		w.named["agent-"+p.name] = p.public
	}
	if w.seldom() {
		certificate := p.certificates[w.r.IntN(2)]
		add("agent-cert-"+p.name, certificate)
		w.named["agent-cert-"+p.name+" cert"] = certificate
	}
}

func generate(t *testing.T, r *rand.Rand, from []pair) *world {
	w := &world{t: t, r: r, dir: t.TempDir(), agent: agent.NewKeyring(), named: map[string]ssh.PublicKey{}, signs: map[string]bool{}}
	for _, i := range r.Perm(len(from)) {
		w.files(from[i])
	}
	for _, i := range r.Perm(len(from)) {
		w.inAgent(from[i])
	}
	w.config.IdentitiesOnly = w.seldom()
	if len(w.config.IdentityFiles) == 0 {
		w.config.IdentityFiles = []string{filepath.Join(w.dir, "missing")} // or else ssh takes the user's own
	}
	return w
}

// sshConfig is the configuration as ssh reads it.
func (w *world) sshConfig() string {
	var b strings.Builder
	fmt.Fprintf(&b, "BatchMode yes\nKexAlgorithms curve25519-sha256\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nIdentityAgent %s\n", w.config.IdentityAgent)
	for _, file := range w.config.IdentityFiles {
		fmt.Fprintf(&b, "IdentityFile %s\n", file)
	}
	for _, file := range w.config.CertificateFiles {
		fmt.Fprintf(&b, "CertificateFile %s\n", file)
	}
	if w.config.IdentitiesOnly {
		b.WriteString("IdentitiesOnly yes\n")
	}
	return w.write("config", []byte(b.String()))
}

var willAttempt = regexp.MustCompile(`(?m)^debug1: Will attempt key: (\S+) (?:(\S+) SHA256:\S+)?( explicit)?( agent)?\r?$`)

// sshOrder are the keys that ssh means to offer, each once, without those that it
// has no private key for: it offers them too, and then can't sign.
func (w *world) sshOrder(port string) (order []ssh.PublicKey) {
	out, err := exec.Command("ssh", "-v", "-F", w.sshConfig(), "-p", port, "user@127.0.0.1", "true").CombinedOutput()
	require.Error(w.t, err)
	require.Contains(w.t, string(out), "Permission denied (publickey)")
	lines := willAttempt.FindAllStringSubmatch(string(out), -1)
	require.Len(w.t, lines, strings.Count(string(out), "Will attempt key: "), "%s", out)
	able := map[string]bool{}
	var all []ssh.PublicKey
	for _, line := range lines {
		name := line[1]
		if line[2] == "" && !w.signs[name] {
			continue // there is no such key; one in PEM without .pub is read when its turn comes
		}
		if strings.HasSuffix(line[2], "-CERT") {
			name += " cert"
		}
		key := w.named[name]
		require.NotNil(w.t, key, "%s", line[0])
		all = append(all, key)
		_, isCertificate := key.(*ssh.Certificate)
		if line[4] != "" || !isCertificate && w.signs[line[1]] {
			able[string(key.Marshal())] = true
		}
	}
	for _, key := range all {
		c, ok := key.(*ssh.Certificate)
		if able[string(key.Marshal())] || ok && able[string(c.Key.Marshal())] {
			order = appendOnce(order, key)
		}
	}
	return order
}

func appendOnce(keys []ssh.PublicKey, key ssh.PublicKey) []ssh.PublicKey {
	for _, k := range keys {
		if bytes.Equal(k.Marshal(), key.Marshal()) {
			return keys
		}
	}
	return append(keys, key)
}

// names are keys as a test's output shows them.
func names(keys []ssh.PublicKey) (all []string) {
	for _, key := range keys {
		name := key.Type()
		if c, ok := key.(*ssh.Certificate); ok {
			name += fmt.Sprintf(" serial %d", c.Serial)
			key = c.Key
		}
		all = append(all, name+" "+ssh.FingerprintSHA256(key))
	}
	return all
}

// TestOrderIsThatOfSSH compares the keys that are offered, and their order, with
// what `ssh -v` says that it will attempt, over generated files and agents.
func TestOrderIsThatOfSSH(t *testing.T) {
	proctest.NeedSSH(t)
	const seed, rounds = 20260607, 60
	port, from := refusing(t), pairs(t)
	r := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // the same worlds on every run
	lengths := map[int]int{}
	for round := range rounds {
		w := generate(t, r, from)
		w.config.IdentityAgent = testfleet.ServeAgent(t, w.agent)
		ring := auth.NewKeyring(nil, zerolog.Nop())
		var ours []ssh.PublicKey
		for _, signer := range ring.Keys(w.config).Signers {
			ours = append(ours, signer.PublicKey())
		}
		ring.Close()
		theirs := w.sshOrder(port)
		require.Equal(t, names(theirs), names(ours), "round %d: %s\n%s", round, w.dir, proctest.ReadText(t, w.sshConfig()))
		lengths[len(ours)]++
	}
	require.Less(t, lengths[0]+lengths[1], rounds/4, "the worlds are meant to have keys: %v", lengths)
}
