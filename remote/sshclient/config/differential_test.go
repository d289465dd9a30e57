package config_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/sshclient/config"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// What OpenSSH and the local reader both have to read alike.
var agreed = map[string]string{
	"Host with tabs":              "Host\tother\tgpu\n\tPort\t2215\n",
	"HostName %h":                 "Host gpu\n HostName %h.lab\n",
	"HostName %%":                 "Host gpu\n HostName fe80::1\n",
	"tilde and environment":       "IdentityFile ~/.ssh/k\nCertificateFile ${GENV_TEST_DIR}/c\nIdentityAgent ${GENV_TEST_DIR}/agent\nUserKnownHostsFile ~/kh ${GENV_TEST_DIR}/kh2\n",
	"tokens":                      "Host gpu\n HostName %h.lab\n User bob\n Port 2217\n IdentityFile %d/%h-%n-%p-%r-%u-%i-%%\n CertificateFile %d/%h\n UserKnownHostsFile /kh/%h/%r\n ProxyCommand nc -X %h %p %n %r %%\n",
	"times":                       "ConnectTimeout 60\nServerAliveInterval 90\nServerAliveCountMax 7\n",
	"ProxyCommand with #":         "ProxyCommand ssh -W foo\n",
	"a quoted name":               "IdentityFile \"/a b/c\"\nUserKnownHostsFile /a /c\n",
	"several IdentityFile":        "IdentityFile /a\nHost gpu\n IdentityFile /b\nHost *\n IdentityFile /c\n IdentityFile /a\n",
	"first value wins":            "Host gpu\n Port 2218\nHost *\n Port 22\n User bob\n User carol\n",
	"case and equals signs":       "host=gpu\n PORT = 2219\n hostname=Gpu.LAB\n identitiesonly=YES\n",
	"negated patterns":            "Host * !gpu\n Port 2220\nHost !other *\n User bob\n",
	"question marks":              "Host gp?\n Port 2221\nHost gpu?\n User bob\n",
	"comments":                    "# a comment\nHost gpu # another\n Port 2222 # and another\n #last\n",
	"ProxyJump then ProxyCommand": "Host gpu\n ProxyJump a,u@b:2222\n ProxyCommand nc\n",
	"ProxyCommand then ProxyJump": "Host gpu\n ProxyCommand nc %h\nHost *\n ProxyJump a\n",
	"ProxyJump none":              "Host gpu\n ProxyJump none\nHost *\n ProxyJump a\n",
	"ProxyCommand none":           "Host gpu\n ProxyCommand none\nHost *\n ProxyJump a\n",
	"an Include in a block":       "Host other\n Include %[1]s/included\nHost *\n User late\n",
	"an Include that holds":       "Host gpu\n Include %[1]s/incl*\nHost *\n User late\n",
	"host key checking":           "StrictHostKeyChecking accept-new\nHashKnownHosts yes\nHostKeyAlias Fleet\nGlobalKnownHostsFile /g1 /g2\n",
	"checking off":                "StrictHostKeyChecking off\nAddressFamily INET6\nBindAddress 127.0.0.1\n",
	"a long IPv6 address":         "HostName 0:0:0:0:0:FFFF:0:1\n",
	"no agent":                    "IdentityAgent none\nIdentitiesOnly yes\nIdentityFile none\nCertificateFile none\n",
	"the usual agent":             "IdentityAgent SSH_AUTH_SOCK\n",
	"an agent by no variable":     "IdentityAgent $GENV_TEST_UNSET\n",
	"an interface":                "BindInterface lo\nBindAddress none\n",
	"an agent by variable":        "IdentityAgent $GENV_TEST_DIR\n",
	"values that change nothing":  "VerifyHostKeyDNS ask\nPubkeyAuthentication host-bound\nRevokedHostKeys none\nKnownHostsCommand NONE\n",
	"nothing":                     "",
	"host keys":                   "VerifyHostKeyDNS yes\nFingerprintHash md5\nCheckHostIP yes\nNoHostAuthenticationForLocalhost yes\n",
	"a command for host keys":     "KnownHostsCommand /bin/x %H %h %p %n %% %%H ${GENV_TEST_DIR} %C\n",
	"no command for host keys":    "KnownHostsCommand none\nKnownHostsCommand /bin/x\n",
	"a dot at the end":            "HostName 10.0.0.1.\n",
	"a name like a number":        "HostName 0b1\n",
	"IPv6 written out":            "HostName 0:0:0:0:0:0:0:1\n",
	"IPv6 in upper case":          "HostName 2001:DB8:0:0::A\n",
	"IPv4 in IPv6":                "HostName ::ffff:10.0.0.1\n",
	"IPv6 with IPv4":              "HostName 64:ff9b::10.0.0.1\n",
	"a zone":                      "HostName fe80::1%%lo\n",
	"windows lines":               "Host gpu\r\n Port 2223\r\n",
}

// What is left to ssh, and where it leads: user, host and port.
var leftToSSH = map[string]struct {
	text, want string
	line       int
}{
	"Fedora's stock Match final":      {"Host gpu\n Port 2201\nMatch final all\n User late\n", "late@gpu:2201", 3},
	"final sees the name as HostName": {"User al\nHost gpu\n HostName %h.lab\nMatch final host gpu.lab\n Port 2202\n", "al@gpu.lab:2202", 4},
	"Match with two criteria":         {"User al\nMatch host gpu user bob\n Port 2211\nMatch host a,gpu user al\n Port 2212\n", "al@gpu:2212", 2},
	"Match !host":                     {"User al\nMatch !host gpu\n Port 2209\n", "al@gpu:22", 2},
	"Match exec":                      {"User al\nHost gpu\nMatch exec \"true\"\n Port 2\n", "al@gpu:2", 3},
	"Host with quotes":                {"User al\nHost \"gpu\"\n Port 2216\n", "al@gpu:2216", 2},
	"a comment in a command":          {"User al\nHost gpu\n ProxyCommand nc foo#bar\n", "al@gpu:22", 3},
	"a quote in a command":            {"User al\nProxyCommand \"nc\" x\n", "al@gpu:22", 2},
	"canonical names":                 {"User al\nCanonicalizeHostname no\n", "al@gpu:22", 2},
	"a backslash":                     {"User al\nIdentityFile /a\\ b\n", "al@gpu:22", 2},
	"several quoted names":            {"User al\nUserKnownHostsFile \"/a b\" /c\n", "al@gpu:22", 2},
	"a pattern of algorithms":         {"User al\nHostKeyAlgorithms ecdsa*,ssh-ed25519\n", "al@gpu:22", 2},
	"a time with units":               {"User al\nConnectTimeout 1m\n", "al@gpu:22", 2},
	"an old name of a keyword":        {"User al\nIdentityFile2 /k\n", "al@gpu:22", 2},
	"an address in short":             {"User al\nHostName 127.1\n", "al@127.0.0.1:22", 2},
	"an address as a number":          {"User al\nHostName 2130706433\n", "al@127.0.0.1:22", 2},
	"an address in octal and hex":     {"User al\nHostName 010.0x7f.65535\n", "al@8.127.255.255:22", 2},
	"a zone by its number":            {"User al\nHostName fe80::1%%1\n", "al@fe80::1%lo:22", 2},
}

func TestLeftToSSH(t *testing.T) {
	proctest.NeedSSH(t)
	for name, tt := range leftToSSH {
		t.Run(name, func(t *testing.T) {
			file := write(t, tt.text)
			_, err := resolve(t, config.ResolverOptions{File: file, SSH: "none"})
			requirePlace(t, err, file, tt.line)
			require.ErrorContains(t, err, "install the OpenSSH client")

			s := proctest.Try(resolve(t, config.ResolverOptions{File: file})).OK(t)
			require.Equal(t, tt.want, fmt.Sprintf("%s@%s:%d", s.User, s.HostName, s.Port))
		})
	}
}

func TestReaderAgreesWithOpenSSH(t *testing.T) {
	proctest.NeedSSH(t)
	dir := t.TempDir()
	t.Setenv("GENV_TEST_DIR", dir)
	t.Setenv("SSH_AUTH_SOCK", "/agent.sock")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "included"), []byte("Port 2299\nHost gpu\n User incl\nHost *\n IdentityFile /i\n"), 0o600))
	for name, text := range agreed {
		t.Run(name, func(t *testing.T) {
			file := write(t, strings.ReplaceAll(text, "%[1]s", dir))
			for _, q := range []config.Lookup{
				{Host: "gpu"},
				{Host: "other"},
				{Host: "GPU"},
				{Host: "gpu", User: "alice"},
				{Host: "gpu", HostName: "10.0.0.1", Port: 2300},
				{Host: "gpu7", User: "bob", HostName: "gpu"},
			} {
				local, openssh, localErr, opensshErr := both(t, file, q)
				require.NoError(t, opensshErr, "%+v", q)
				require.NoError(t, localErr, "%+v", q)
				require.Equal(t, openssh, local, "%+v\n%s", q, text)
			}
		})
	}
}

// What only ssh can tell: the local reader names the line.
func TestErrorsNameThePlace(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		line int
	}{
		"Match with =":           {"Match host=gpu\n", 1},
		"an unknown keyword":     {"Prot 22\n", 1},
		"a bad port":             {"Host *\n\n Port 70000\n", 3},
		"a bad time":             {"ConnectTimeout 5x\n", 1},
		"revoked keys":           {"RevokedHostKeys /etc/ssh/%Z\n", 1},
		"no login by key":        {"PubkeyAuthentication no\n", 1},
		"an open quote":          {"IdentityFile \"/a b\n", 1},
		"an unset variable":      {"IdentityFile ${GENV_TEST_UNSET}/k\n", 1},
		"a value too many":       {"Port 22 23\n", 1},
		"no value":               {"User\n", 1},
		"a token of hosts":       {"\nKnownHostsCommand /bin/x %Z\n", 2},
		"an unknown token":       {"IdentityFile %Z\n", 1},
		"Include with variables": {"Include ${HOME}/x\n", 1},
	} {
		t.Run(name, func(t *testing.T) {
			file := write(t, tt.text)
			_, err := resolve(t, config.ResolverOptions{File: file, SSH: "none"})
			require.NotEmpty(t, requirePlace(t, err, file, tt.line))
		})
	}
}

// TestGeneratedConfigurations compares both ways: what the local reader accepts, ssh
// reads alike, and what ssh refuses, it refuses too.
func TestGeneratedConfigurations(t *testing.T) { compareGenerated(t, 400) }

func TestSoakGeneratedConfigurations(t *testing.T) {
	proctest.Soak(t)
	compareGenerated(t, 4000)
}

func compareGenerated(t *testing.T, rounds int) {
	proctest.NeedSSH(t)
	const seed = 20261122
	t.Setenv("GENV_TEST_FOLDER", t.TempDir())
	t.Setenv("GENV_TEST_SOCKET", "/socket")
	t.Setenv("SSH_AUTH_SOCK", "/agent.sock")
	g := generator{rand.New(rand.NewPCG(seed, seed)), t.TempDir()} //nolint:gosec // the same configurations on every run
	for _, name := range []string{"a", "b", "c1", "c2"} {
		require.NoError(t, os.WriteFile(filepath.Join(g.dir, name), []byte(strings.ReplaceAll(g.file(4), "Include", "#")), 0o600))
	}
	generated := make([]compared, rounds)
	for i := range generated {
		generated[i].query, generated[i].text = g.query(), g.file(16)
	}
	var workers sync.WaitGroup
	next := make(chan *compared)
	for range runtime.NumCPU() {
		workers.Go(func() {
			for c := range next {
				c.local, c.openssh, c.localErr, c.opensshErr = both(t, write(t, c.text), c.query)
			}
		})
	}
	for i := range generated {
		next <- &generated[i]
	}
	close(next)
	workers.Wait()
	left, refused := 0, 0
	for i, c := range generated {
		switch {
		case c.localErr == nil:
			require.NoError(t, c.opensshErr, "config %d, %+v: ssh refuses what was read:\n%s", i, c.query, c.text)
			require.True(t, c.local.FixedHostKeyOrder || !c.openssh.FixedHostKeyOrder, "config %d:\n%s", i, c.text)
			c.local.FixedHostKeyOrder = c.openssh.FixedHostKeyOrder // ssh -G does not always show it
			require.Equal(t, c.openssh, c.local, "config %d, %+v:\n%s", i, c.query, c.text)
		case c.opensshErr == nil:
			left++
			t.Logf("config %d is left to ssh: %v", i, c.localErr)
			require.ErrorAs(t, c.localErr, new(*config.Error), "%s", c.text)
		default:
			refused++
		}
	}
	t.Logf("%d configurations: %d read alike, %d left to ssh, %d refused both ways", rounds, rounds-left-refused, left, refused)
	require.Less(t, left, rounds/20, "the local reader is meant to understand these")
	require.Greater(t, refused, rounds/50, "what can't be honoured is refused, whichever way it is read")
	require.Less(t, refused, rounds/3)
}

// compared is a configuration, and what both ways make of it.
type compared struct {
	query                config.Lookup
	text                 string
	local, openssh       config.HostConfig
	localErr, opensshErr error
}

// generator makes configurations of lines that mean something together.
type generator struct {
	*rand.Rand
	dir string // has the files that Include lines name
}

// classes are the lines of a configuration by what they are about, each class as
// frequent as the others. Words in capitals are replaced, see words.
var classes = [][]string{
	{"Host NAME", "Host NAME NAME", "Host\tNAME NAME NAME", "host = NAME", "Host NAME # NAME"},
	{"HostName ADDRESS", "HostName=ADDRESS", "\tHostName = \"ADDRESS\"", "hostname\tADDRESS", "HostName ADDRESS"},
	{"Port PORT", "port PORT", "Port = \"PORT\"", "Port 22 # PORT", "User USER", "user=USER", "User \"USER\""},
	{"IdentityFile FILE", "IdentityFile \"FILE\"", "IdentityFile none", "CertificateFile FILE", "IdentityFile ~USER/k"},
	{"IdentityAgent none", "IdentityAgent SSH_AUTH_SOCK", "IdentityAgent FILE", "IdentityAgent $GENV_TEST_SOCKET", "IdentityAgent $GENV_TEST_UNSET", "IdentityAgent ${GENV_TEST_UNSET}/s", "IdentityFile $GENV_TEST_UNSET", "IdentityAgent ${GENV_TEST_FOLDER}/s", "IdentitiesOnly yes", "IdentitiesOnly no", "BatchMode yes"},
	{"ProxyJump JUMP", "ProxyJump JUMP,JUMP", "ProxyJump none", "ProxyJump JUMP,JUMP,JUMP", "ProxyJump = JUMP"},
	{"ProxyCommand nc %h %p", "ProxyCommand none", "ProxyCommand sh -c \"x '%h'\"", "ProxyCommand=ssh -W [%h]:%p -l %r JUMP"},
	{"ConnectTimeout TIME", "ServerAliveInterval TIME", "ServerAliveCountMax 0", "ServerAliveCountMax 7"},
	{"UserKnownHostsFile FILE FILE", "GlobalKnownHostsFile /g /h", "UserKnownHostsFile none", "UserKnownHostsFile /dev/null"},
	{"HostKeyAlias x", "HostKeyAlias Gpu.LAB", "StrictHostKeyChecking no", "StrictHostKeyChecking YES", "StrictHostKeyChecking accept-new", "StrictHostKeyChecking ask", "HashKnownHosts yes"},
	{"AddressFamily any", "BindAddress 127.0.0.1", "BindAddress ::1", "BindAddress none", "BindInterface lo", "BindInterface none"},
	{"KexAlgorithms KEX", "KexAlgorithms = KEX", "KexAlgorithms \"KEX\"", "Ciphers CIPHER", "MACs MAC", "ciphers CIPHER # MAC", "macs\tMAC"},
	{"HostKeyAlgorithms KEY", "PubkeyAcceptedAlgorithms KEY", "PubkeyAcceptedKeyTypes KEY", "CASignatureAlgorithms SIGNATURE", "HostKeyAlgorithms\t\"KEY\""},
	{"RequiredRSASize 0", "RequiredRSASize 2048", "RequiredRSASize 4096", "PubkeyAuthentication yes", "PubkeyAuthentication host-bound", "PreferredAuthentications publickey", "PreferredAuthentications gssapi-with-mic,publickey,password"},
	{"Include DIR/a", "Include DIR/*", "Include DIR/b DIR/none", "Include DIR/c*"},
	{"RevokedHostKeys none", "KnownHostsCommand /bin/x %H %h %p %n", "KnownHostsCommand none", "CheckHostIP yes", "NoHostAuthenticationForLocalhost yes", "FingerprintHash md5", "VerifyHostKeyDNS yes"},
	{"# comment", "", "SendEnv LANG LC_*", "ForwardAgent no", "  # Port 1", "Protocol 2", "ControlMaster auto", "Compression yes", "SetEnv A=B", "LogLevel DEBUG", "GSSAPIAuthentication no"},
}

// rare are lines that end what genv can do with a host.
var rare = []string{"Match final all", "Match user USER host NAME", "Match !host NAME,NAME", "PubkeyAuthentication no", "PreferredAuthentications password", "KexAlgorithms sntrup761x25519-sha512@openssh.com", "Ciphers -*", "PKCS11Provider /lib/x", "ProxyUseFdpass yes", "RevokedHostKeys FILE"}

// words are what the words in capitals stand for.
var words = map[string][]string{
	"NAME":    {"gpu", "gpu-0?", "gpu-*", "*", "!gpu-01", "*.lab", "bast?on", "gpu.lab", "gpu-01.lab", "GPU", "10.0.0.*", "::1", "fe80::*", "!*.lab", "127.*"},
	"USER":    {"alice", "bob", "root", "alice.b", "nobody"},
	"ADDRESS": {"%h.lab", "10.0.0.1", "gpu-01.lab", "%h", "::1", "2001:DB8:0:0::1", "GPU.Lab", "fe80::1%%lo", "%%%h"},
	"FILE":    {"~/.ssh/%h", "/k/%r@%n:%p", "/a", "%d/x", "/k1", "~/.ssh/id_%L", "${GENV_TEST_FOLDER}/%u-%i", "/k/%%/%l", "DIR/a"},
	"JUMP":    {"a", "b:22", "root@a", "u@b:2222", "[::1]:2200", "a.lab", "10.0.0.9"},
	"TIME":    {"15", "90", "0", "604800"},
}

var hosts = []string{"gpu", "gpu-01", "bastion", "x.lab", "Gpu-01", "10.0.0.1", "::1", "fe80::1", "GPU.LAB", "gpu.lab"}

// lists are the names that the lists of algorithms are made of, and the patterns that
// only some of them may have. Names that not every OpenSSH since 8.8 has are left out.
var lists = map[string]struct{ names, patterns string }{
	"KEX": {`curve25519-sha256 curve25519-sha256@libssh.org ecdh-sha2-nistp256 ecdh-sha2-nistp521 diffie-hellman-group14-sha256
diffie-hellman-group16-sha512 diffie-hellman-group-exchange-sha256 diffie-hellman-group1-sha1 diffie-hellman-group14-sha1
diffie-hellman-group18-sha512`, "-diffie* -ecdh* -*sha1 -*25519*"},
	"CIPHER":    {"aes128-cbc 3des-cbc aes128-ctr aes256-ctr aes128-gcm@openssh.com chacha20-poly1305@openssh.com", "-aes* -*gcm* -*ctr"},
	"MAC":       {"hmac-sha1 hmac-sha1-96 hmac-sha2-256 hmac-sha2-512-etm@openssh.com umac-64@openssh.com", "-umac* -*etm* -hmac-sha1*"},
	"KEY":       {"ssh-ed25519 ssh-rsa rsa-sha2-256 rsa-sha2-512 ecdsa-sha2-nistp256 ssh-ed25519-cert-v01@openssh.com sk-ssh-ed25519@openssh.com", "-ecdsa* -*cert* -sk*"},
	"SIGNATURE": {"ssh-ed25519 ssh-rsa rsa-sha2-256 rsa-sha2-512 ecdsa-sha2-nistp384", "-ecdsa* -sk*,rsa*"},
}

func (g generator) pick(from ...string) string { return from[g.IntN(len(from))] }

// list is a list of algorithms.
func (g generator) list(kind string) string {
	names := strings.Fields(lists[kind].names)
	if g.IntN(4) == 0 {
		return g.pick(strings.Fields(lists[kind].patterns)...)
	}
	var listed []string
	for range 1 + g.IntN(4) {
		listed = append(listed, g.pick(names...))
	}
	return g.pick("", "", "+", "-", "^") + strings.Join(listed, ",")
}

// line is a random line of a random class.
func (g generator) line() string {
	template := g.pick(classes[g.IntN(len(classes))]...)
	if g.IntN(100) == 0 {
		template = g.pick(rare...)
	}
	return capitals.ReplaceAllStringFunc(template, g.word)
}

var capitals = regexp.MustCompile("[A-Z]{3,}")

// word is what a word in capitals is replaced with, or the word itself.
func (g generator) word(word string) string {
	switch from, ok := words[word]; {
	case ok:
		return strings.ReplaceAll(g.pick(from...), "DIR", g.dir)
	case lists[word].names != "":
		return g.list(word)
	case word == "DIR":
		return g.dir
	case word == "PORT":
		return fmt.Sprint(1 + g.IntN(65535))
	}
	return word
}

// file is a configuration of some lines.
func (g generator) file(lines int) string {
	var b strings.Builder
	for range 3 + g.IntN(lines) {
		fmt.Fprintf(&b, "%s%s\n", g.pick("", "  ", "\t"), g.line())
	}
	return b.String()
}

// query is a host, in one of four cases with a user, an address or a port.
func (g generator) query() config.Lookup {
	q := config.Lookup{Host: g.pick(hosts...)}
	if g.IntN(4) == 0 {
		q.User = g.pick("alice", "root")
	}
	if g.IntN(4) == 0 {
		q.HostName = g.pick("gpu-02.lab", "::1", "127.0.0.1")
	}
	if g.IntN(4) == 0 {
		q.Port = 1 + g.IntN(65535)
	}
	return q
}
