package sshclient_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

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
	"authority without the port, others with": {"cert-ecdsa-ca", "@cert-authority * <ca-rsa>\n@cert-authority <A> <ca-ecdsa>", nil, "ok"},
	"authority without the port, stale with":  {"cert-rsa-ca", "@cert-authority * <ca-ecdsa>\n<N> <old-ed25519>\n@cert-authority <A> <ca-rsa>", nil, "ok"},
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

	"VerifyHostKeyDNS and known":        {"plain", "<N> <ed25519>", []string{"VerifyHostKeyDNS yes"}, "ok"},
	"VerifyHostKeyDNS and unknown":      {"plain", "", []string{"VerifyHostKeyDNS ask"}, "unknown"},
	"VerifyHostKeyDNS and stale":        {"plain", "<N> <old-ed25519>", []string{"VerifyHostKeyDNS yes"}, "changed"},
	"CheckHostIP of an address":         {"plain", "<N> <ed25519>", []string{"CheckHostIP yes"}, "ok"},
	"KnownHostsCommand":                 {"plain", "", []string{"KnownHostsCommand /bin/echo %H <ed25519>"}, "ok"},
	"KnownHostsCommand, no port":        {"plain", "", []string{"KnownHostsCommand /bin/echo %h <ed25519>"}, "unknown"},
	"KnownHostsCommand, stale":          {"plain", "", []string{"KnownHostsCommand /bin/echo %H <old-ed25519>"}, "changed"},
	"KnownHostsCommand and a file":      {"plain", "<N> <ed25519>", []string{"KnownHostsCommand /bin/echo %H <old-ed25519>"}, "ok"},
	"KnownHostsCommand, no lines":       {"plain", "<N> <ed25519>", []string{"KnownHostsCommand /bin/true"}, "ok"},
	"KnownHostsCommand, nothing":        {"plain", "", []string{"KnownHostsCommand /bin/true"}, "unknown"},
	"KnownHostsCommand revokes":         {"plain", "<N> <ed25519>", []string{"KnownHostsCommand /bin/echo @revoked %H <ed25519>"}, "revoked"},
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
}

// TestHostKeysLikeOpenSSH: whatever known_hosts and ssh_config say, genv accepts and
// refuses what ssh does, and shows the same fingerprint.
func TestHostKeysLikeOpenSSH(t *testing.T) {
	f := newHostKeyFleet(t)
	for _, tt := range hostKeyCases {
		f.server(t, tt.server)
	}
	t.Setenv("GENV_TEST_HOST", f.text(t, f.servers["plain"], "<N>"))
	for name, tt := range hostKeyCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, _ := f.prepare(t, f.servers[tt.server], tt)
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

// TestAcceptNewLikeOpenSSH: accept-new adds the line that ssh adds, or none.
func TestAcceptNewLikeOpenSSH(t *testing.T) {
	f := newHostKeyFleet(t)
	cases := map[string]struct {
		server, known string
		config        []string
		want, added   string // of a hashed line, the key
	}{
		"new":                           {"plain", "", nil, "ok", "<N> <ed25519>"},
		"new, rsa":                      {"rsa", "", nil, "ok", "<N> <rsa>"},
		"an alias":                      {"plain", "", []string{"HostKeyAlias Fleet"}, "ok", "fleet <ed25519>"},
		"known":                         {"plain", "<N> <ed25519>", nil, "ok", ""},
		"known without the port":        {"plain", "<A> <ed25519>", nil, "ok", ""},
		"stale without the port":        {"plain", "<A> <old-ed25519>", nil, "ok", "<N> <ed25519>"},
		"stale":                         {"plain", "<N> <old-ed25519>", nil, "changed", ""},
		"known by another type":         {"rsa", "<N> <ed25519>", nil, "changed", ""},
		"revoked":                       {"plain", "@revoked * <ed25519>", nil, "revoked", ""},
		"hashed":                        {"plain", "", []string{"HashKnownHosts yes"}, "ok", "<ed25519>"},
		"hashed and known":              {"plain", "<hN> <ed25519>", []string{"HashKnownHosts yes"}, "ok", ""},
		"hashed and stale":              {"plain", "<hN> <old-ed25519>", nil, "changed", ""},
		"a certificate":                 {"cert-rsa-ca", "", nil, "ok", "<N> <ed25519>"},
		"a certificate, hashed":         {"cert-ecdsa-ca", "", []string{"HashKnownHosts yes"}, "ok", "<rsa>"},
		"a known authority":             {"cert-rsa-ca", "@cert-authority * <ca-rsa>", nil, "ok", ""},
		"an unknown authority":          {"cert-rsa-ca", "@cert-authority * <ca-ecdsa>", nil, "ok", "<N> <ed25519>"},
		"expired":                       {"cert-expired", "@cert-authority * <ca-rsa>", nil, "ok", "<N> <ed25519>"},
		"expired, by KnownHostsCommand": {"cert-expired", "", []string{"KnownHostsCommand /bin/echo @cert-authority * <ca-rsa>"}, "unknown", ""},
		"a revoked authority":           {"cert-rsa-ca", "@revoked * <ca-rsa>", nil, "revoked", ""},
		"known by KnownHostsCommand":    {"plain", "", []string{"KnownHostsCommand /bin/echo %H <ed25519>"}, "ok", ""},
		"stale by KnownHostsCommand":    {"plain", "", []string{"KnownHostsCommand /bin/echo %H <old-ed25519>"}, "changed", ""},
		"no known_hosts":                {"plain", "", []string{"UserKnownHostsFile none"}, "unknown", ""},
		"nothing is kept":               {"plain", "", []string{"UserKnownHostsFile /dev/null"}, "ok", ""},
		"IPv6":                          {"IPv6", "", []string{"HostName 0::1"}, "ok", "<N> <ed25519>"},
	}
	for _, tt := range cases {
		f.server(t, tt.server)
	}
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := f.servers[tt.server]
			c := hostKeyCase{tt.server, tt.known + "\n", append(tt.config, "StrictHostKeyChecking accept-new", "UpdateHostKeys no"), tt.want}
			file, known := f.prepare(t, s, c)
			before := proctest.ReadText(t, known)
			theirs, _, output := openSSH(t, file)
			require.Equal(t, tt.want, theirs, "what ssh does:\n%s", output)
			added := strings.TrimSpace(strings.TrimPrefix(proctest.ReadText(t, known), before))
			require.True(t, strings.HasSuffix(added, f.text(t, s, tt.added)) && (added == "") == (tt.added == ""), "ssh added %q", added)

			require.NoError(t, os.WriteFile(known, []byte(before), 0o600))
			ours, text := f.ours(t, file)
			require.Equal(t, theirs, ours, "%s", text)
			after := proctest.ReadText(t, known)
			if strings.HasPrefix(added, "|") {
				require.Regexp(t, `\n\|1\|\S+ `+regexp.QuoteMeta(f.text(t, s, tt.added))+"\n$", after, "another salt")
				require.Contains(t, run(t, "ssh-keygen", "-F", f.text(t, s, "<N>"), "-f", known), "found")
				return
			}
			require.Equal(t, added, strings.TrimSpace(strings.TrimPrefix(after, before)), "the same line")
		})
	}
}
