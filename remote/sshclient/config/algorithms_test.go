package config_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote/sshclient/config"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// local resolves "gpu" without ssh.
func local(t *testing.T, text string) (config.HostConfig, error) {
	t.Helper()
	return resolve(t, config.ResolverOptions{File: write(t, text), SSH: "none", User: "tester"})
}

func TestAlgorithmLists(t *testing.T) {
	kex := func(s config.HostConfig) []string { return s.KexAlgorithms }
	ciphers := func(s config.HostConfig) []string { return s.Ciphers }
	macs := func(s config.HostConfig) []string { return s.MACs }
	hostKeys := func(s config.HostConfig) []string { return s.HostKeyAlgorithms }
	user := func(s config.HostConfig) []string { return s.PubkeyAcceptedAlgorithms }
	authority := func(s config.HostConfig) []string { return s.CASignatureAlgorithms }
	for name, tt := range map[string]struct {
		text string
		of   func(config.HostConfig) []string
		want string
	}{
		"the list itself":            {"Ciphers aes256-ctr,aes128-gcm@openssh.com", ciphers, "aes256-ctr aes128-gcm@openssh.com"},
		"what the library lacks":     {"MACs umac-64@openssh.com,hmac-sha2-512", macs, "hmac-sha2-512"},
		"added":                      {"Ciphers +aes128-cbc,3des-cbc", ciphers, "chacha20-poly1305@openssh.com aes128-gcm@openssh.com aes256-gcm@openssh.com aes128-ctr aes192-ctr aes256-ctr aes128-cbc 3des-cbc"},
		"added twice":                {"MACs +hmac-sha1,hmac-sha1-96", macs, "hmac-sha2-256-etm@openssh.com hmac-sha2-512-etm@openssh.com hmac-sha2-256 hmac-sha2-512 hmac-sha1 hmac-sha1-96"},
		"removed":                    {"KexAlgorithms -ecdh*,diffie*,mlkem768x25519-sha256", kex, "curve25519-sha256 curve25519-sha256@libssh.org"},
		"moved to the front":         {"MACs ^hmac-sha1,hmac-sha2-512", macs, "hmac-sha1 hmac-sha2-512 hmac-sha2-256-etm@openssh.com hmac-sha2-512-etm@openssh.com hmac-sha2-256"},
		"the first line wins":        {"MACs +hmac-sha1-96\nMACs hmac-sha2-512", macs, "hmac-sha2-256-etm@openssh.com hmac-sha2-512-etm@openssh.com hmac-sha2-256 hmac-sha2-512 hmac-sha1 hmac-sha1-96"},
		"of another host":            {"Host other\n MACs hmac-sha1\nHost *\n MACs hmac-sha2-256", macs, "hmac-sha2-256"},
		"no certificates":            {"HostKeyAlgorithms -*cert*", hostKeys, "ssh-ed25519 ecdsa-sha2-nistp256 ecdsa-sha2-nistp384 ecdsa-sha2-nistp521 rsa-sha2-512 rsa-sha2-256"},
		"SHA-1 of RSA, by request":   {"PubkeyAcceptedAlgorithms ssh-rsa,rsa-sha2-256", user, "ssh-rsa rsa-sha2-256"},
		"the old name":               {"PubkeyAcceptedKeyTypes ssh-ed25519,sk-ssh-ed25519@openssh.com", user, "ssh-ed25519 sk-ssh-ed25519@openssh.com"},
		"authorities":                {"CASignatureAlgorithms ssh-ed25519", authority, "ssh-ed25519"},
		"authorities, all but ECDSA": {"CASignatureAlgorithms -ecdsa*,sk*", authority, "ssh-ed25519 rsa-sha2-512 rsa-sha2-256"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, strings.Join(tt.of(proctest.Try(local(t, tt.text+"\n")).OK(t)), " "))
		})
	}
}

func TestFixedHostKeyOrder(t *testing.T) {
	for list, want := range map[string]bool{
		"": false, "+ssh-rsa": false, "-ssh-ed25519*": false,
		"ssh-ed25519": true, "ssh-ed25519,rsa-sha2-512": true, "^rsa-sha2-512": true, "^ssh-ed25519": true,
	} {
		s := proctest.Try(local(t, strings.TrimSuffix("HostKeyAlgorithms "+list+"\n", "HostKeyAlgorithms \n"))).OK(t)
		require.Equal(t, want, s.FixedHostKeyOrder, "%q", list)
	}
}

func TestNothingInsecureByDefault(t *testing.T) {
	s := proctest.Try(local(t, "")).OK(t)
	insecure := ssh.InsecureAlgorithms()
	for _, both := range [][2][]string{
		{s.KexAlgorithms, insecure.KeyExchanges},
		{s.Ciphers, insecure.Ciphers},
		{s.MACs, insecure.MACs},
		{s.HostKeyAlgorithms, insecure.HostKeys},
		{s.PubkeyAcceptedAlgorithms, append(insecure.PublicKeyAuths, ssh.CertAlgoRSAv01)},
		{s.CASignatureAlgorithms, insecure.PublicKeyAuths},
	} {
		require.NotEmpty(t, both[0])
		for _, name := range both[1] {
			require.NotContains(t, both[0], name)
		}
	}
	require.Contains(t, s.KexAlgorithms, "diffie-hellman-group16-sha512")
	require.Contains(t, s.KexAlgorithms, "diffie-hellman-group-exchange-sha256")
	require.Equal(t, 1024, s.RequiredRSASize)
}

// A restriction of which nothing is left, or which no login with a key passes, is
// an error at its line, for the hosts that it applies to.
func TestRestrictionsWithoutALogin(t *testing.T) {
	proctest.NeedSSH(t)
	leftToSSH := map[string]bool{ // which names no line
		"Ciphers aes256-cbc": true, "HostKeyAlgorithms sk-*": true, "PubkeyAcceptedAlgorithms webauthn-*": true,
	}
	for line, says := range map[string]string{
		"KexAlgorithms sntrup761x25519-sha512@openssh.com": "none of the algorithms that KexAlgorithms sntrup761x25519-sha512@openssh.com allows",
		"KexAlgorithms -*":                                       "KexAlgorithms",
		"Ciphers aes256-cbc":                                     "it has aes128-gcm@openssh.com,",
		"MACs umac-128-etm@openssh.com":                          "MACs",
		"HostKeyAlgorithms sk-*":                                 "HostKeyAlgorithms",
		"PubkeyAcceptedAlgorithms webauthn-*":                    "PubkeyAcceptedAlgorithms",
		"CASignatureAlgorithms -*":                               "CASignatureAlgorithms",
		"PubkeyAuthentication no":                                "genv logs in with a key",
		"PKCS11Provider /lib/x":                                  "PKCS11Provider /lib/x cannot be honoured",
		"RevokedHostKeys /krl":                                   "revokedhostkeys /krl cannot be honoured by genv's own SSH",
		"KnownHostsCommand /bin/x '%H'":                          "knownhostscommand /bin/x",
		"KnownHostsCommand /bin/x %H %t":                         "knownhostscommand /bin/x",
		"PreferredAuthentications keyboard-interactive,password": "genv logs in with a key",
	} {
		t.Run(line, func(t *testing.T) {
			file := write(t, "Host other\n Port 1\nHost gpu\n "+line+"\n")
			_, err := resolve(t, config.ResolverOptions{File: file})
			require.ErrorAs(t, err, new(*config.Error))
			if !leftToSSH[line] {
				requirePlace(t, err, file, 4)
			}
			require.ErrorContains(t, err, says)

			_, opensshErr := bySSH(t, file, config.Lookup{Host: "gpu"})
			require.Contains(t, strings.ToLower(opensshErr.Error()), strings.ToLower(strings.Fields(line)[0]))

			proctest.Try(config.New(config.ResolverOptions{File: file}).Resolve(t.Context(), config.Lookup{Host: "other"})).OK(t, "another host")
		})
	}
}

// What an older ssh prints under another name is obeyed as well.
func TestOldNames(t *testing.T) {
	ssh := filepath.Join(t.TempDir(), "ssh")
	require.NoError(t, proctest.WriteProgram(ssh, []byte("#!/bin/sh\nprintf 'hostname gpu\\nport 22\\nuser u\\npubkeyacceptedkeytypes ssh-ed25519\\nrsaminsize 3072\\n'\n")))
	s := proctest.Try(resolve(t, config.ResolverOptions{File: write(t, "Match all\n"), SSH: ssh})).OK(t)
	require.Equal(t, []string{"ssh-ed25519"}, s.PubkeyAcceptedAlgorithms)
	require.Equal(t, 3072, s.RequiredRSASize)
}

// Many hosts may need a program each (Match exec). Waiting for a turn takes nothing of the time that one has.
func TestWaitingForATurn(t *testing.T) {
	ssh := filepath.Join(t.TempDir(), "ssh")
	require.NoError(t, proctest.WriteProgram(ssh, []byte("#!/bin/sh\n[ $5 != slow ] || exec sleep 5\nsleep 0.3\nprintf 'hostname gpu\\nport 22\\nuser u\\n'\n")))
	r := config.New(config.ResolverOptions{File: write(t, "Match all\n"), SSH: ssh, Timeout: time.Second})
	var all sync.WaitGroup
	for i := range 24 {
		all.Go(func() {
			proctest.Try(r.Resolve(t.Context(), config.Lookup{Host: fmt.Sprintf("gpu-%d", i)})).OK(t)
		})
	}
	all.Wait()
	require.ErrorIs(t, proctest.Try(r.Resolve(t.Context(), config.Lookup{Host: "slow"})).Err, context.DeadlineExceeded)
}

func TestRefuseConnection(t *testing.T) {
	file := write(t, "Host gpu\n RefuseConnection \"in repair until Monday\"\nHost *\n Protocol 2\n")
	r := config.New(config.ResolverOptions{File: file, SSH: "none", User: "tester"})
	require.EqualError(t, proctest.Try(r.Resolve(t.Context(), config.Lookup{Host: "gpu"})).Err, file+":2: RefuseConnection: in repair until Monday")
	proctest.Try(r.Resolve(t.Context(), config.Lookup{Host: "other"})).OK(t)
}

// What ssh does not accept as a list, the local reader leaves to ssh.
func TestInvalidLists(t *testing.T) {
	proctest.NeedSSH(t)
	for _, line := range []string{
		"Ciphers aes128", "Ciphers aes*", "Ciphers +", "Ciphers aes128-ctr,nonesuch", "Ciphers ^blowfish-cbc", "MACs hmac-sha*", "MACs +none",
		"KexAlgorithms curve25519-sha256,!ecdh-sha2-nistp256", "HostKeyAlgorithms ssh-ed448", "HostKeyAlgorithms x*",
		"PubkeyAcceptedAlgorithms +!ssh-rsa", "CASignatureAlgorithms ssh-ed25519-cert-v01@openssh.com", "CASignatureAlgorithms nonesuch", "RequiredRSASize big", "RequiredRSASize -1", "PubkeyAuthentication perhaps",
	} {
		t.Run(line, func(t *testing.T) {
			_, _, localErr, opensshErr := both(t, write(t, line+"\n"), config.Lookup{Host: "gpu"})
			require.Error(t, localErr)
			require.Error(t, opensshErr)
		})
	}
}

// FuzzAlgorithmList: no list makes the reader fail otherwise than by an *Error, and
// none that it accepts leaves the library its own list.
func FuzzAlgorithmList(f *testing.F) {
	for _, list := range []string{"+ssh-rsa", "-*", "^rsa-sha2-512", "ssh-*,!x", "", ",", "+", "*", "?sh-ed25519"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		s, err := local(t, "HostKeyAlgorithms "+list+"\nCiphers "+list+"\n")
		if err != nil {
			require.ErrorAs(t, err, new(*config.Error))
			return
		}
		require.NotEmpty(t, s.HostKeyAlgorithms)
		require.NotEmpty(t, s.Ciphers)
	})
}
