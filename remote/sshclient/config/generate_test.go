package config_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"

	"github.com/seed-3119e985/genv/remote/sshclient/config"
)

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
