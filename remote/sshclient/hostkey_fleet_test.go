package sshclient_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// hostKeyFleet are servers with different host keys and certificates, all of the same few keys.
type hostKeyFleet struct {
	dir     string
	servers map[string]*sshd
}

// newHostKeyFleet makes the keys ed25519, ecdsa and rsa of hosts, other ones whose
// names begin with old, and authorities whose names begin with ca.
func newHostKeyFleet(t *testing.T) *hostKeyFleet {
	t.Helper()
	f := &hostKeyFleet{dir: t.TempDir(), servers: map[string]*sshd{}}
	for _, name := range []string{"ed25519", "ecdsa", "rsa", "old-ed25519", "old-ecdsa", "old-rsa", "ca-ed25519", "ca-ecdsa", "ca-rsa"} {
		kind := name[strings.LastIndexByte(name, '-')+1:]
		run(t, "ssh-keygen", append(map[bool][]string{true: {"-b", "1024"}}[kind == "rsa"], "-q", "-t", kind, "-N", "", "-f", f.file(name))...)
	}
	return f
}

func (f *hostKeyFleet) file(name string) string { return f.dir + "/" + name }

// sign makes a certificate for the host key named, and returns its line for
// sshd_config. The principal %s is the server's address.
func (f *hostKeyFleet) sign(t *testing.T, s *sshd, ca, key string, options ...string) string {
	t.Helper()
	pub := proctest.ReadFile(t, f.file(key+".pub"))
	s.write(t, key+".pub", string(pub))
	for i := range options {
		options[i] = strings.ReplaceAll(options[i], "%s", s.address)
	}
	run(t, "ssh-keygen", append(options, "-q", "-s", f.file(ca), "-h", "-I", "test", s.file(key+".pub"))...)
	return "HostCertificate " + s.file(key+"-cert.pub")
}

// certificates are the servers that have one: the authority, the key, and options of ssh-keygen.
var certificates = map[string][]string{
	"cert-rsa-ca":        {"ca-rsa", "ed25519", "-n", "%s"},
	"cert-ecdsa-ca":      {"ca-ecdsa", "rsa", "-n", "%s"},
	"cert-ed25519-ca":    {"ca-ed25519", "ecdsa", "-n", "%s"},
	"cert-anyone":        {"ca-ed25519", "ed25519"},
	"cert-expired":       {"ca-rsa", "ed25519", "-n", "%s", "-V", "20200101:20200102"},
	"cert-not-yet":       {"ca-rsa", "ed25519", "-n", "%s", "-V", "20990101:20990102"},
	"cert-other-name":    {"ca-rsa", "ed25519", "-n", "other.lab"},
	"cert-wildcard-name": {"ca-rsa", "ed25519", "-n", "127.*"},
	"cert-alias":         {"ca-rsa", "ed25519", "-n", "fleet"},
	"cert-sha1":          {"ca-rsa", "ed25519", "-n", "%s", "-t", "ssh-rsa"},
	"cert-critical":      {"ca-rsa", "ed25519", "-n", "%s", "-O", "critical:x@y=z"},
}

// server starts a server on first use: "plain" has all three keys, others are named
// after their key or are in certificates, with an RSA key besides.
func (f *hostKeyFleet) server(t *testing.T, name string) {
	if f.servers[name] != nil {
		return
	}
	s := &sshd{dir: f.file("of-" + name), address: freshAddress()}
	require.NoError(t, os.MkdirAll(s.dir, 0o700))
	keys := map[string][]string{"plain": {"ed25519", "ecdsa", "rsa"}, "rsa": {"rsa"}, "ecdsa": {"ecdsa"}, "IPv6": {"ed25519"}}[name]
	if name == "IPv6" {
		s.address = "::1"
	}
	s.port = freePort(t, s.address)
	var config []string
	if c := certificates[name]; c != nil {
		keys = []string{c[1], "rsa"}
		config = append(config, f.sign(t, s, c[0], c[1], append([]string(nil), c[2:]...)...))
	}
	s.hostKey = f.file(keys[0])
	for _, key := range keys[1:] {
		config = append(config, "HostKey "+f.file(key))
	}
	s.prepare(t, config...)
	f.servers[name] = s
}

// text replaces the keys and the names of a server: <N> is that with its port, <A>
// its address, <hN> and <hA> are hashed.
func (f *hostKeyFleet) text(t *testing.T, s *sshd, text string) string {
	n := fmt.Sprintf("[%s]:%d", s.address, s.port)
	text = strings.NewReplacer("<N>", n, "<A>", s.address, "<P>", fmt.Sprint(s.port), "<hN>", knownhosts.HashHostname(n), "<hA>", knownhosts.HashHostname(s.address)).Replace(text)
	return regexp.MustCompile(`<[a-z0-9-]+>`).ReplaceAllStringFunc(text, func(name string) string {
		pub := proctest.ReadFile(t, f.file(strings.Trim(name, "<>")+".pub"))
		return strings.Join(strings.Fields(string(pub))[:2], " ")
	})
}

// prepare writes the known_hosts and the ssh_config of a case.
func (f *hostKeyFleet) prepare(t *testing.T, s *sshd, tt hostKeyCase) (config, known string) {
	t.Helper()
	known = write(t, f.text(t, s, tt.known))
	if strings.Contains(strings.Join(tt.config, ""), "<C>") {
		through := s.config(t, "StrictHostKeyChecking no", "UserKnownHostsFile /dev/null", "Host through", "HostName "+s.address, fmt.Sprintf("Port %d", s.port))
		tt.config = strings.Split(strings.ReplaceAll(strings.Join(tt.config, "\n"), "<C>", through), "\n")
	}
	short := s.address
	if ip := net.ParseIP(s.address).To4(); ip != nil {
		short = fmt.Sprintf("%d.%d", ip[0], int(ip[1])<<16+int(ip[2])<<8+int(ip[3]))
	}
	tt.config = append(tt.config, "UserKnownHostsFile <K>", "KexAlgorithms curve25519-sha256") // the fastest
	config = strings.NewReplacer("<K>", known, "<short>", short).Replace(strings.Join(tt.config, "\n"))
	return s.config(t, f.text(t, s, config)), known
}

var shown = regexp.MustCompile(`(?m)^debug1: Server host (?:key|certificate): \S+ (SHA256:[^\s,]+)`)

// openSSH is what ssh makes of a host, with the fingerprint that it was shown.
func openSSH(t *testing.T, file string) (outcome, fingerprint, output string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ssh", "-v", "-F", file, "-o", "BatchMode=yes", "gpu", "true").CombinedOutput()
	output = string(out)
	if m := shown.FindStringSubmatch(output); m != nil {
		fingerprint = m[1]
	}
	for _, line := range []struct{ has, outcome string }{
		{"REVOKED HOST KEY DETECTED", "revoked"},
		{"KnownHostsCommand failed", "unusable"},
		{"HOST IDENTIFICATION HAS CHANGED", "changed"},
		{"Host key verification failed", "unknown"},
	} {
		if err != nil && strings.Contains(output, line.has) {
			return line.outcome, fingerprint, output
		}
	}
	require.NoError(t, err, "%s", output)
	return "ok", fingerprint, output
}

// ours is what genv makes of it; the text is the error, or the accepted key.
func (f *hostKeyFleet) ours(t *testing.T, file string) (outcome, text string) {
	t.Helper()
	c := newClient(t, sshclient.Options{ConfigFile: file})
	_, err := c.Run(t.Context(), gpu, sh("true"))
	if err == nil {
		peer, known := c.Peer(gpu)
		if !known {
			return "ok", ""
		}
		return "ok", peer.HostKey
	}
	var e *remote.Error
	require.True(t, errors.As(err, &e), "%v", err)
	text = err.Error()
	switch {
	case e.Class == remote.HostKeyChanged && strings.Contains(text, "REVOKED"):
		return "revoked", text
	case e.Class == remote.HostKeyChanged:
		return "changed", text
	case e.Class == remote.HostKey && strings.Contains(text, "no key of"):
		return "unknown", text
	case e.Class == remote.Configuration && strings.Contains(text, "KnownHostsCommand"):
		return "unusable", text
	}
	return string(e.Class), text
}
