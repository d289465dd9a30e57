package sshclient_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
)

// hostKeyFleet are servers with different host keys and certificates, all of the
// same few keys.
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
		run(t, "ssh-keygen", append(map[bool][]string{true: {"-b", "2048"}}[kind == "rsa"], "-q", "-t", kind, "-N", "", "-f", f.file(name))...)
	}
	return f
}

func (f *hostKeyFleet) file(name string) string { return f.dir + "/" + name }

// sign makes a certificate for the host key named, and returns its line for
// sshd_config. The principal %s is the server's address.
func (f *hostKeyFleet) sign(t *testing.T, s *sshd, ca, key string, options ...string) string {
	t.Helper()
	pub, err := os.ReadFile(f.file(key + ".pub"))
	require.NoError(t, err)
	s.write(t, key+".pub", string(pub))
	for i := range options {
		options[i] = strings.ReplaceAll(options[i], "%s", s.address)
	}
	run(t, "ssh-keygen", append(options, "-q", "-s", f.file(ca), "-h", "-I", "test", s.file(key+".pub"))...)
	return "HostCertificate " + s.file(key+"-cert.pub")
}

// certificates are the servers that have one: the authority, the key, and options
// of ssh-keygen.
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
func (f *hostKeyFleet) server(t *testing.T, name string) *sshd {
	if f.servers[name] != nil {
		return f.servers[name]
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
	return s
}

// text replaces the keys and the names of a server: <N> is that with its port, <A>
// its address, <hN> and <hA> are hashed.
func (f *hostKeyFleet) text(t *testing.T, s *sshd, text string) string {
	n := fmt.Sprintf("[%s]:%d", s.address, s.port)
	text = strings.NewReplacer("<N>", n, "<A>", s.address, "<P>", fmt.Sprint(s.port), "<hN>", knownhosts.HashHostname(n), "<hA>", knownhosts.HashHostname(s.address), "<D>", f.dir).Replace(text)
	return regexp.MustCompile(`<[a-z0-9-]+>`).ReplaceAllStringFunc(text, func(name string) string {
		pub, err := os.ReadFile(f.file(strings.Trim(name, "<>") + ".pub"))
		require.NoError(t, err)
		return strings.Join(strings.Fields(string(pub))[:2], " ")
	})
}

type hostKeyCase struct {
	server, known string
	config        []string
	want          string
}

var hostKeyCases = map[string]hostKeyCase{
	"known":                                {"plain", "<N> <ed25519>", nil, "ok"},
	"nothing known":                        {"plain", "", nil, "unknown"},
	"another host's":                       {"plain", "other <ed25519>", nil, "unknown"},
	"stale ed25519, right rsa":             {"plain", "<N> <old-ed25519>\n<N> <rsa>", nil, "changed"},
	"right rsa, stale ed25519":             {"plain", "<N> <rsa>\n<N> <old-ed25519>", nil, "changed"},
	"right ed25519, stale rsa":             {"plain", "<N> <ed25519>\n<N> <old-rsa>", nil, "ok"},
	"stale rsa, right ed25519":             {"plain", "<N> <old-rsa>\n<N> <ed25519>", nil, "ok"},
	"stale ecdsa, right rsa":               {"plain", "<N> <old-ecdsa>\n<N> <rsa>", nil, "changed"},
	"right ecdsa, stale rsa":               {"plain", "<N> <old-rsa>\n<N> <ecdsa>", nil, "ok"},
	"stale rsa only":                       {"plain", "<N> <old-rsa>", nil, "changed"},
	"rsa only":                             {"plain", "<N> <rsa>", nil, "ok"},
	"ecdsa only":                           {"plain", "<N> <ecdsa>", nil, "ok"},
	"stale and right of one type":          {"plain", "<N> <old-ed25519>\n<N> <ed25519>", nil, "ok"},
	"a type that the host does not have":   {"rsa", "<N> <ed25519>", nil, "changed"},
	"unknown, rsa server":                  {"rsa", "", nil, "unknown"},
	"unknown, ecdsa server":                {"ecdsa", "", nil, "unknown"},
	"rsa preferred by ssh_config":          {"plain", "<N> <old-ed25519>\n<N> <rsa>", []string{"HostKeyAlgorithms ^rsa-sha2-512"}, "ok"},
	"unknown, rsa preferred by ssh_config": {"plain", "", []string{"HostKeyAlgorithms ^rsa-sha2-256"}, "unknown"},
	"md5 fingerprints":                     {"plain", "", []string{"FingerprintHash md5"}, "unknown"},

	"without the port":                   {"plain", "<A> <ed25519>", nil, "ok"},
	"without the port, rsa":              {"plain", "<A> <rsa>", nil, "unknown"},
	"without the port, stale":            {"plain", "<A> <old-ed25519>", nil, "unknown"},
	"stale with the port, right without": {"plain", "<N> <old-ed25519>\n<A> <ed25519>", nil, "changed"},
	"right with the port, stale without": {"plain", "<N> <ed25519>\n<A> <old-ed25519>", nil, "ok"},
	"another port":                       {"plain", "[<A>]:1 <ed25519>", nil, "unknown"},
	"any port":                           {"plain", "[<A>]:* <ed25519>", nil, "ok"},
	"any name":                           {"plain", "* <ed25519>", nil, "ok"},
	"any name, stale":                    {"plain", "* <old-ed25519>", nil, "changed"},
	"a pattern with the port":            {"plain", "[127.??.*]:<P> <ed25519>", nil, "ok"},
	"a pattern that does not match":      {"plain", "[127.??]:<P> <ed25519>", nil, "unknown"},
	"negated with the port":              {"plain", "*,!<N> <ed25519>", nil, "ok"},
	"negated without the port":           {"plain", "*,!<A> <ed25519>", nil, "ok"},
	"negated in both forms":              {"plain", "!<N>,!<A>,* <ed25519>", nil, "unknown"},
	"negated, but known":                 {"plain", "!<N>,!<A>,* <ed25519>\n<N> <ed25519>", nil, "ok"},
	"negated only":                       {"plain", "!other <ed25519>", nil, "unknown"},
	"hashed":                             {"plain", "<hN> <ed25519>", nil, "ok"},
	"hashed without the port":            {"plain", "<hA> <ed25519>", nil, "ok"},
	"hashed and stale":                   {"plain", "<hN> <old-ed25519>", nil, "changed"},
	"an alias":                           {"plain", "fleet <ed25519>", []string{"HostKeyAlias fleet"}, "ok"},
	"an alias has no port":               {"plain", "[fleet]:<P> <ed25519>", []string{"HostKeyAlias fleet"}, "unknown"},
	"an alias is not the address":        {"plain", "<N> <ed25519>", []string{"HostKeyAlias fleet"}, "unknown"},

	"revoked":                              {"plain", "<N> <ed25519>\n@revoked <N> <ed25519>", nil, "revoked"},
	"revoked before":                       {"plain", "@revoked * <ed25519>\n<N> <ed25519>", nil, "revoked"},
	"revoked and unknown":                  {"plain", "@revoked * <ed25519>", nil, "revoked"},
	"revoked for another host":             {"plain", "@revoked other <ed25519>\n<N> <ed25519>", nil, "ok"},
	"revoked without the port":             {"plain", "@revoked <A> <ed25519>", nil, "revoked"},
	"another type is revoked":              {"plain", "@revoked * <rsa>\n<N> <ed25519>", nil, "ok"},
	"revoked by its hash":                  {"plain", "@revoked <hN> <ed25519>\n<N> <ed25519>", nil, "revoked"},
	"a key for authorities is no key":      {"plain", "@cert-authority <N> <ed25519>", nil, "unknown"},
	"two markers":                          {"plain", "@revoked @cert-authority <N> <ed25519>\n<N> <ed25519>", nil, "ok"},
	"bad lines":                            {"plain", strings.Repeat("<N> bad\n", 150) + "<N> <ed25519>", nil, "ok"},
	"a cut line of the host":               {"plain", "<N> ssh-ed25519 AAAAC3NzaC1\n", nil, "unknown"},
	"a folder as known_hosts":              {"plain", "<N> <ed25519>", []string{"UserKnownHostsFile /tmp <K>"}, "ok"},
	"a folder as known_hosts, and unknown": {"plain", "", []string{"UserKnownHostsFile /tmp <K>"}, "unknown"},

	"authority rsa, key ed25519":              {"cert-rsa-ca", "@cert-authority <N> <ca-rsa>", nil, "ok"},
	"authority ecdsa, key rsa":                {"cert-ecdsa-ca", "@cert-authority <N> <ca-ecdsa>", nil, "ok"},
	"authority ed25519, key ecdsa":            {"cert-ed25519-ca", "@cert-authority <N> <ca-ed25519>", nil, "ok"},
	"authority without the port":              {"cert-rsa-ca", "@cert-authority <A> <ca-rsa>", nil, "ok"},
	"authority by pattern":                    {"cert-rsa-ca", "@cert-authority 127.* <ca-rsa>", nil, "ok"},
	"authority of others":                     {"cert-rsa-ca", "@cert-authority *.lab <ca-rsa>", nil, "unknown"},
	"unknown authority":                       {"cert-rsa-ca", "@cert-authority <N> <ca-ecdsa>", nil, "unknown"},
	"unknown authority, known key":            {"cert-rsa-ca", "@cert-authority <N> <ca-ecdsa>\n<N> <ed25519>", nil, "ok"},
	"no authority, known key":                 {"cert-rsa-ca", "<N> <ed25519>", nil, "ok"},
	"no authority, known without the port":    {"cert-rsa-ca", "<A> <ed25519>", nil, "ok"},
	"no authority, known rsa":                 {"cert-rsa-ca", "<N> <rsa>", nil, "ok"},
	"no authority, stale key":                 {"cert-rsa-ca", "<N> <old-ed25519>", nil, "changed"},
	"no authority, stale, right without port": {"cert-rsa-ca", "<N> <old-ed25519>\n<A> <ed25519>", nil, "ok"},
	"authority, stale key":                    {"cert-rsa-ca", "@cert-authority <N> <ca-rsa>\n<N> <old-ed25519>", nil, "ok"},
	"nothing known, a certificate":            {"cert-rsa-ca", "", nil, "unknown"},
	"nothing known, a certificate for rsa":    {"cert-ecdsa-ca", "", nil, "unknown"},
	"revoked authority":                       {"cert-rsa-ca", "@cert-authority <N> <ca-rsa>\n@revoked * <ca-rsa>", nil, "revoked"},
	"revoked authority, known key":            {"cert-rsa-ca", "<N> <ed25519>\n@revoked * <ca-rsa>", nil, "revoked"},
	"revoked key in a certificate":            {"cert-rsa-ca", "@cert-authority <N> <ca-rsa>\n@revoked * <ed25519>", nil, "revoked"},
	"expired":                                 {"cert-expired", "@cert-authority <N> <ca-rsa>", nil, "unknown"},
	"expired, known key":                      {"cert-expired", "@cert-authority <N> <ca-rsa>\n<N> <ed25519>", nil, "ok"},
	"expired, known key without port":         {"cert-expired", "@cert-authority <N> <ca-rsa>\n<A> <ed25519>", nil, "ok"},
	"expired, stale key":                      {"cert-expired", "@cert-authority <N> <ca-rsa>\n<N> <old-ed25519>", nil, "changed"},
	"not yet valid":                           {"cert-not-yet", "@cert-authority <N> <ca-rsa>", nil, "unknown"},
	"another principal":                       {"cert-other-name", "@cert-authority * <ca-rsa>", nil, "unknown"},
	"another principal, known key":            {"cert-other-name", "@cert-authority * <ca-rsa>\n<N> <ed25519>", nil, "ok"},
	"a wildcard as principal":                 {"cert-wildcard-name", "@cert-authority * <ca-rsa>", nil, "unknown"},
	"no principal":                            {"cert-anyone", "@cert-authority * <ca-ed25519>", nil, "ok"},
	"the alias is the principal":              {"cert-alias", "@cert-authority fleet <ca-rsa>", []string{"HostKeyAlias fleet"}, "ok"},
	"the alias is not the principal":          {"cert-rsa-ca", "@cert-authority fleet <ca-rsa>", []string{"HostKeyAlias fleet"}, "unknown"},
	"critical options":                        {"cert-critical", "@cert-authority * <ca-rsa>", nil, "unknown"},
	"signed with SHA-1":                       {"cert-sha1", "@cert-authority * <ca-rsa>", nil, "unknown"},
	"signed with SHA-1, known key":            {"cert-sha1", "@cert-authority * <ca-rsa>\n<N> <ed25519>", nil, "ok"},
	"signed with SHA-1, allowed":              {"cert-sha1", "@cert-authority * <ca-rsa>", []string{"CASignatureAlgorithms +ssh-rsa"}, "ok"},
	"authority's signature excluded":          {"cert-ecdsa-ca", "@cert-authority * <ca-ecdsa>", []string{"CASignatureAlgorithms ssh-ed25519"}, "unknown"},
	"only certificates allowed":               {"cert-rsa-ca", "@cert-authority <N> <ca-rsa>", []string{"HostKeyAlgorithms ssh-ed25519-cert-v01@openssh.com"}, "ok"},
	"only certificates allowed, known key":    {"cert-rsa-ca", "<N> <ed25519>", []string{"HostKeyAlgorithms ssh-ed25519-cert-v01@openssh.com"}, "ok"},

	"RevokedHostKeys without it":        {"plain", "<N> <ed25519>", []string{"RevokedHostKeys <D>/old-rsa.pub"}, "ok"},
	"RevokedHostKeys, a list":           {"plain", "<N> <ed25519>", []string{"RevokedHostKeys <D>/ed25519.pub"}, "revoked"},
	"RevokedHostKeys, another type":     {"plain", "<N> <ed25519>", []string{"RevokedHostKeys <D>/rsa.pub"}, "ok"},
	"RevokedHostKeys of an unknown":     {"plain", "", []string{"RevokedHostKeys <D>/ed25519.pub"}, "revoked"},
	"RevokedHostKeys is not there":      {"plain", "<N> <ed25519>", []string{"RevokedHostKeys <D>/nonexistent"}, "unusable"},
	"RevokedHostKeys is empty":          {"plain", "<N> <ed25519>", []string{"RevokedHostKeys /dev/null"}, "ok"},
	"RevokedHostKeys with other text":   {"plain", "<N> <ed25519>", []string{"RevokedHostKeys <D>/ed25519"}, "unusable"},
	"RevokedHostKeys, an authority":     {"cert-rsa-ca", "<N> <ed25519>", []string{"RevokedHostKeys <D>/ca-rsa.pub"}, "revoked"},
	"RevokedHostKeys, a certified key":  {"cert-rsa-ca", "@cert-authority * <ca-rsa>", []string{"RevokedHostKeys <D>/ed25519.pub"}, "revoked"},
	"RevokedHostKeys none":              {"plain", "<N> <ed25519>", []string{"RevokedHostKeys none"}, "ok"},
	"KRL without it":                    {"plain", "<N> <ed25519>", []string{"RevokedHostKeys <D>/krl-rsa"}, "ok"},
	"KRL":                               {"plain", "<N> <ed25519>", []string{"RevokedHostKeys <D>/krl-ed25519"}, "revoked"},
	"KRL, an authority":                 {"cert-rsa-ca", "<N> <ed25519>", []string{"RevokedHostKeys <D>/krl-ca"}, "revoked"},
	"KRL, by the certificate's id":      {"cert-rsa-ca", "@cert-authority * <ca-rsa>", []string{"RevokedHostKeys <D>/krl-id"}, "revoked"},
	"KRL, the id of another's":          {"cert-ecdsa-ca", "@cert-authority * <ca-ecdsa>", []string{"RevokedHostKeys <D>/krl-id"}, "ok"},
	"KRL, cut":                          {"plain", "<N> <ed25519>", []string{"RevokedHostKeys <D>/krl-cut"}, "unusable"},
	"VerifyHostKeyDNS and known":        {"plain", "<N> <ed25519>", []string{"VerifyHostKeyDNS yes"}, "ok"},
	"VerifyHostKeyDNS and unknown":      {"plain", "", []string{"VerifyHostKeyDNS ask"}, "unknown"},
	"VerifyHostKeyDNS and stale":        {"plain", "<N> <old-ed25519>", []string{"VerifyHostKeyDNS yes"}, "changed"},
	"localhost needs no key":            {"plain", "<N> <old-ed25519>", []string{"NoHostAuthenticationForLocalhost yes"}, "ok"},
	"localhost, but an alias":           {"plain", "", []string{"NoHostAuthenticationForLocalhost yes", "HostKeyAlias fleet"}, "unknown"},
	"localhost, but a ProxyCommand":     {"plain", "", []string{"NoHostAuthenticationForLocalhost yes", "ProxyCommand ssh -F <C> -W %h:%p through"}, "unknown"},
	"localhost, and revoked by a file":  {"plain", "", []string{"NoHostAuthenticationForLocalhost yes", "RevokedHostKeys <D>/ed25519.pub"}, "revoked"},
	"localhost, and revoked":            {"plain", "@revoked * <ed25519>", []string{"NoHostAuthenticationForLocalhost yes"}, "ok"},
	"CheckHostIP of an address":         {"plain", "<N> <ed25519>", []string{"CheckHostIP yes"}, "ok"},
	"KnownHostsCommand":                 {"plain", "", []string{"KnownHostsCommand /bin/echo %H <ed25519>"}, "ok"},
	"KnownHostsCommand, no port":        {"plain", "", []string{"KnownHostsCommand /bin/echo %h <ed25519>"}, "unknown"},
	"KnownHostsCommand, stale":          {"plain", "", []string{"KnownHostsCommand /bin/echo %H <old-ed25519>"}, "changed"},
	"KnownHostsCommand and a file":      {"plain", "<N> <ed25519>", []string{"KnownHostsCommand /bin/echo %H <old-ed25519>"}, "ok"},
	"KnownHostsCommand, no lines":       {"plain", "<N> <ed25519>", []string{"KnownHostsCommand /bin/true"}, "ok"},
	"KnownHostsCommand, nothing":        {"plain", "", []string{"KnownHostsCommand /bin/true"}, "unknown"},
	"KnownHostsCommand revokes":         {"plain", "<N> <ed25519>", []string{"KnownHostsCommand /bin/echo @revoked %H <ed25519>"}, "revoked"},
	"KnownHostsCommand gives the key":   {"plain", "", []string{"KnownHostsCommand /bin/echo \"%H %t %K\""}, "ok"},
	"KnownHostsCommand orders types":    {"plain", "<N> <rsa>", []string{"KnownHostsCommand /bin/echo <A> <old-ed25519>"}, "changed"},
	"KnownHostsCommand has no shell":    {"plain", "", []string{"KnownHostsCommand /bin/echo %H <ed25519> ; $(true) | x"}, "ok"},
	"KnownHostsCommand fails":           {"plain", "<N> <ed25519>", []string{"KnownHostsCommand /bin/false"}, "unusable"},
	"KnownHostsCommand is missing":      {"plain", "<N> <ed25519>", []string{"KnownHostsCommand /nonexistent %H"}, "ok"},
	"KnownHostsCommand without a path":  {"plain", "", []string{"KnownHostsCommand echo %H <ed25519>"}, "unknown"},
	"KnownHostsCommand with an alias":   {"plain", "", []string{"HostKeyAlias fleet", "KnownHostsCommand /bin/echo %H,%k <ed25519>"}, "ok"},
	"KnownHostsCommand and environment": {"plain", "", []string{"KnownHostsCommand /bin/echo ${GENV_TEST_HOST} <ed25519>"}, "ok"},
	"127.1 in other words":              {"plain", "<N> <ed25519>", []string{"HostName <short>"}, "ok"},
	"IPv6":                              {"IPv6", "<N> <ed25519>", nil, "ok"},
	"IPv6, written out":                 {"IPv6", "<N> <ed25519>", []string{"HostName 0:0:0:0:0:0:0:1"}, "ok"},
	"IPv6, with IPv4":                   {"IPv6", "<N> <ed25519>", []string{"HostName 0::0:0.0.0.1"}, "ok"},
	"IPv6 without the port":             {"IPv6", "<A> <ed25519>", []string{"HostName ::0001"}, "ok"},
	"IPv6 by pattern":                   {"IPv6", "[::?]:* <ed25519>", nil, "ok"},
	"IPv6, hashed":                      {"IPv6", "<hA> <ed25519>", []string{"HostName 0:0::1"}, "ok"},
	"IPv6, unknown":                     {"IPv6", "[::2]:<P> <ed25519>", nil, "unknown"},
	"IPv6, written out in known_hosts":  {"IPv6", "[0:0:0:0:0:0:0:1]:<P> <ed25519>", nil, "unknown"},
	"127.1 in other words, stale":       {"plain", "<N> <ed25519>", []string{"HostName <short>"}, "ok"},
}

// TestHostKeysLikeOpenSSH: whatever known_hosts and ssh_config say, genv accepts and
// refuses what ssh does, and shows the same fingerprint.
func TestHostKeysLikeOpenSSH(t *testing.T) {
	f := newHostKeyFleet(t)
	for _, tt := range hostKeyCases {
		f.server(t, tt.server)
	}
	f.lists(t)
	for name, tt := range hostKeyCases {
		t.Run(name, func(t *testing.T) {
			s := f.servers[tt.server]
			t.Setenv("GENV_TEST_HOST", f.text(t, s, "<N>"))
			file := f.prepare(t, s, tt)
			theirs, fingerprint, output := openSSH(t, file)
			require.Equal(t, tt.want, theirs, "what ssh does:\n%s", output)
			ours, text := f.ours(t, file)
			require.Equal(t, theirs, ours, "%s\nssh:\n%s", text, output)
			if slices.Contains([]string{"ok", "unknown", "changed", "revoked"}, ours) && fingerprint != "" {
				require.Contains(t, text, fingerprint, "%s", output)
			}
		})
	}
}

// lists makes key revocation lists.
func (f *hostKeyFleet) lists(t *testing.T) {
	t.Helper()
	run(t, "ssh-keygen", "-q", "-k", "-f", f.file("krl-ed25519"), f.file("ed25519.pub"))
	run(t, "ssh-keygen", "-q", "-k", "-f", f.file("krl-rsa"), f.file("rsa.pub"))
	run(t, "ssh-keygen", "-q", "-k", "-f", f.file("krl-ca"), f.file("ca-rsa.pub"))
	require.NoError(t, os.WriteFile(f.file("spec"), []byte("id: test\n"), 0o600))
	run(t, "ssh-keygen", "-q", "-k", "-f", f.file("krl-id"), "-s", f.file("ca-rsa.pub"), f.file("spec"))
	krl, err := os.ReadFile(f.file("krl-rsa"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(f.file("krl-cut"), krl[:len(krl)-10], 0o600))
}

// prepare writes known_hosts and ssh_config of a case.
func (f *hostKeyFleet) prepare(t *testing.T, s *sshd, tt hostKeyCase) string {
	t.Helper()
	s.write(t, "known_hosts", f.text(t, s, tt.known))
	if strings.Contains(strings.Join(tt.config, ""), "<C>") {
		through := s.config(t, "StrictHostKeyChecking no", "UserKnownHostsFile /dev/null", "Host through", "HostName "+s.address, fmt.Sprintf("Port %d", s.port))
		tt.config = strings.Split(strings.ReplaceAll(strings.Join(tt.config, "\n"), "<C>", through), "\n")
	}
	short := s.address
	if ip := net.ParseIP(s.address).To4(); ip != nil {
		short = fmt.Sprintf("%d.%d", ip[0], int(ip[1])<<16+int(ip[2])<<8+int(ip[3]))
	}
	tt.config = append(tt.config, "KexAlgorithms curve25519-sha256") // the fastest
	config := strings.NewReplacer("<K>", s.file("known_hosts"), "<short>", short).Replace(strings.Join(tt.config, "\n"))
	return s.config(t, f.text(t, s, config))
}

var shown = regexp.MustCompile(`(?m)^debug1: Server host (?:key|certificate): \S+ ((?:SHA256|MD5):[^\s,]+)`)

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
		{" revoked by file ", "revoked"},
		{"Error checking host key", "unusable"},
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
	case e.Class == remote.Configuration && (strings.Contains(text, "RevokedHostKeys") || strings.Contains(text, "KnownHostsCommand")):
		return "unusable", text
	}
	return string(e.Class), text
}
