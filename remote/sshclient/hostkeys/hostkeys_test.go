package hostkeys_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/seed-3119e985/genv/remote/sshclient/hostkeys"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func signer(t testing.TB, key any, err error) ssh.Signer {
	t.Helper()
	require.NoError(t, err)
	return proctest.Try(ssh.NewSignerFromKey(key)).OK(t)
}

func ed(t testing.TB) ssh.Signer {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	return signer(t, key, err)
}

func line(key ssh.PublicKey) string { return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) }

// defaults are the host key algorithms that ssh asks for by default, in its order, as far as the library has them.
var defaults = []string{
	ssh.CertAlgoED25519v01, ssh.CertAlgoECDSA256v01, ssh.CertAlgoECDSA384v01, ssh.CertAlgoECDSA521v01, ssh.CertAlgoRSASHA512v01, ssh.CertAlgoRSASHA256v01,
	ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256,
}

var rules = hostkeys.Rules{Authority: func(*ssh.Certificate) bool { return true }}

// db are some files, in which hosts are looked up by `name:port`.
type db struct {
	store *hostkeys.Cache
	files []string
}

func (d db) lookup(address string) *hostkeys.Known { return d.store.Lookup(d.files, named(address)) }

func (d db) Check(address string, key ssh.PublicKey) error {
	return d.lookup(address).Check(key, rules, time.Now())
}

func (d db) Algorithms(address string, allowed []string) []string {
	return d.lookup(address).Algorithms(allowed)
}

func named(address string) hostkeys.Name {
	host, port, err := net.SplitHostPort(address)
	number, numberErr := strconv.Atoi(port)
	if err != nil || numberErr != nil {
		panic(address)
	}
	return hostkeys.Name{Host: host, Port: number}
}

func load(t testing.TB, content ...string) (db, string) {
	t.Helper()
	var log bytes.Buffer
	var files []string
	for i, text := range content {
		name := filepath.Join(t.TempDir(), fmt.Sprint("known_hosts", i))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		files = append(files, name)
	}
	d := db{hostkeys.NewCache(zerolog.New(&log)), append(files, "/nonexistent/known_hosts")}
	d.lookup("any:22") // reads the files
	return d, log.String()
}

func TestNameForms(t *testing.T) {
	key := ed(t).PublicKey()
	k := line(key)
	for name, tt := range map[string]struct {
		file    string
		known   []string
		unknown []string
	}{
		"a name":          {"gpu " + k, []string{"gpu:22", "gpu:2222"}, []string{"gpu2:22"}},
		"a port":          {"[gpu]:2222 " + k, []string{"gpu:2222"}, []string{"gpu:22"}},
		"several":         {"gpu,10.0.0.1 " + k, []string{"gpu:22", "10.0.0.1:22"}, nil},
		"upper case":      {"GPU.Lab " + k, []string{"gpu.lab:22"}, nil},
		"wildcards":       {"gpu-?.lab,*.dc " + k, []string{"gpu-1.lab:22", "x.dc:22", "x.dc:2222"}, []string{"gpu-10.lab:22"}},
		"negated":         {"*.lab,!bad.lab " + k, []string{"a.lab:22"}, []string{"bad.lab:22"}},
		"hashed":          {knownhosts.HashHostname("gpu") + " " + k, []string{"gpu:22"}, []string{"gpu2:22"}},
		"hashed, a port":  {knownhosts.HashHostname("[gpu]:2222") + " " + k, []string{"gpu:2222"}, []string{"gpu:22"}},
		"IPv6":            {"fe80::1 " + k + "\n[::1]:2222 " + k, []string{"[fe80::1]:22", "[::1]:2222"}, []string{"[::1]:22"}},
		"tabs":            {"gpu\t" + strings.ReplaceAll(k, " ", "\t") + "\tcomment here", []string{"gpu:22"}, nil},
		"windows lines":   {"gpu " + k + "\r\n", []string{"gpu:22"}, nil},
		"no last newline": {"# comment\n\ngpu " + k, []string{"gpu:22"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			db, _ := load(t, tt.file)
			for _, address := range tt.known {
				require.NoError(t, db.Check(address, key), address)
			}
			for _, address := range tt.unknown {
				require.ErrorAs(t, db.Check(address, key), new(*hostkeys.Unknown), address)
			}
		})
	}
}

func TestBadLinesAreSkipped(t *testing.T) {
	key := ed(t).PublicKey()
	for name, bad := range map[string]string{
		"half a line": "gpu ssh-ed25519", "no key": "gpu", "bad base64": "gpu ssh-ed25519 AAAA!!!", "a type that does not fit": "gpu ssh-rsa " + strings.Fields(line(key))[1],
		"an unknown marker": "@never gpu " + line(key), "a bad hash": "|1|x|y " + line(key), "a hash of another kind": "|2|QQ==|QQ== " + line(key),
		"a bare negation": "! " + line(key), "a bad port": "[gpu " + line(key), "SSH 1": "gpu 1024 35 123456789", "binary": "\x00\xff\xfe",
	} {
		t.Run(name, func(t *testing.T) {
			db, log := load(t, "first "+line(key)+"\n"+bad+"\nlast "+line(key)+"\n")
			require.NoError(t, db.Check("first:22", key))
			require.NoError(t, db.Check("last:22", key))
			require.Contains(t, log, `"line":2`)
		})
	}
}

func TestUnknownChangedRevoked(t *testing.T) {
	right, wrong := ed(t).PublicKey(), ed(t).PublicKey()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	other := signer(t, rsaKey, err).PublicKey()
	db, _ := load(t, "# one\n", "\ngpu "+line(right)+"\ngone "+line(other)+"\n@revoked * "+line(wrong)+"\nbad "+line(wrong))
	require.NoError(t, db.Check("gpu:22", right))
	require.ErrorAs(t, db.Check("new:22", right), new(*hostkeys.Unknown))
	var changed *hostkeys.Changed
	require.ErrorAs(t, db.Check("gpu:22", other), &changed)
	require.False(t, changed.Revoked)
	require.Equal(t, 2, changed.Known[0].Line)
	require.True(t, strings.HasSuffix(changed.Known[0].File, "known_hosts1"), "%v names the real file", changed.Known)
	require.ErrorAs(t, db.Check("gone:22", right), &changed, "known by another type of key is not unknown")
	for _, host := range []string{"gpu:22", "new:22", "bad:22"} {
		require.ErrorAs(t, db.Check(host, wrong), &changed)
		require.True(t, changed.Revoked)
	}
}

func TestAuthorities(t *testing.T) {
	ca, host := ed(t), ed(t)
	certificate := func(change func(*ssh.Certificate)) ssh.PublicKey {
		c := &ssh.Certificate{Key: host.PublicKey(), CertType: ssh.HostCert, ValidPrincipals: []string{"gpu.lab"}, ValidBefore: ssh.CertTimeInfinity}
		if change != nil {
			change(c)
		}
		require.NoError(t, c.SignCert(rand.Reader, ca))
		return c
	}
	db, _ := load(t, "@cert-authority *.lab "+line(ca.PublicKey()))
	require.NoError(t, db.Check("gpu.lab:22", certificate(nil)))
	require.Error(t, db.Check("gpu.dc:22", certificate(nil)), "not this authority's")
	require.Error(t, db.Check("gpu2.lab:22", certificate(nil)), "another host's")
	require.Error(t, db.Check("gpu.lab:22", certificate(func(c *ssh.Certificate) { c.ValidBefore = uint64(time.Now().Add(-time.Hour).Unix()) })))
	require.Error(t, db.Check("gpu.lab:22", certificate(func(c *ssh.Certificate) { c.CertType = ssh.UserCert })))
	require.ErrorAs(t, db.Check("gpu.lab:22", host.PublicKey()), new(*hostkeys.Unknown), "a plain key where an authority is known")
	require.Equal(t, ssh.CertAlgoED25519v01, db.Algorithms("gpu.lab:22", defaults)[0])

	revoked, _ := load(t, "@cert-authority *.lab "+line(ca.PublicKey())+"\n@revoked * "+line(host.PublicKey()))
	require.Error(t, revoked.Check("gpu.lab:22", certificate(nil)))
}

func TestAlgorithmsFollowKnownHosts(t *testing.T) {
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ec := signer(t, ecKey, err).PublicKey()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	r := signer(t, rsaKey, err).PublicKey()
	db, _ := load(t, "gpu "+line(r)+"\ngpu "+line(ec)+"\n", "gpu "+line(ed(t).PublicKey())+"\n")
	require.Equal(t, defaults, db.Algorithms("gpu:22", defaults), "the first type is known: the order is that of ssh, not of known_hosts")
	require.Equal(t, defaults, db.Algorithms("new:22", defaults))
	require.Equal(t, defaults, db.Algorithms("gpu:2222", defaults), "not known with this port")
	r2, _ := load(t, "gpu "+line(r)+"\n@revoked gpu "+line(ec))
	require.Equal(t, []string{ssh.CertAlgoRSASHA512v01, ssh.CertAlgoRSASHA256v01, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256, ssh.CertAlgoED25519v01}, r2.Algorithms("gpu:22", defaults)[:5])
	require.NotContains(t, r2.Algorithms("gpu:22", defaults), ssh.KeyAlgoRSA, "no SHA-1")
	require.Len(t, r2.Algorithms("gpu:22", defaults), len(defaults))
	ca, _ := load(t, "@cert-authority gpu "+line(r)+"\ngpu "+line(ec))
	require.Equal(t, append(defaults[:6:6], ssh.KeyAlgoECDSA256, ssh.KeyAlgoED25519), ca.Algorithms("gpu:22", defaults)[:8], "certificates of any type, whatever the type of the authority")
	require.Equal(t, []string{ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384}, db.Algorithms("gpu:22", []string{ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA256}), "what is not allowed is not requested")
	require.Equal(t, []string{ssh.CertAlgoED25519v01}, db.Algorithms("gpu:22", []string{ssh.CertAlgoED25519v01}), "nothing else is allowed")
}

func TestReloadAndAccept(t *testing.T) {
	store := hostkeys.NewCache(zerolog.Nop())
	file := filepath.Join(t.TempDir(), "new", "known_hosts")
	accept := func(address string, hash bool, key ssh.PublicKey) error {
		r := rules
		r.AddTo, r.Hash = file, hash
		return store.Accept(store.Lookup([]string{file}, named(address)), key, r, time.Now())
	}
	keys := make([]ssh.PublicKey, 20)
	var all sync.WaitGroup
	for i := range keys {
		keys[i] = ed(t).PublicKey()
		for range 2 { // twice each: added once
			all.Go(func() {
				require.NoError(t, accept(fmt.Sprintf("gpu-%d:22", i), i%2 == 0, keys[i]))
			})
		}
	}
	all.Wait()
	db := db{store, []string{file}}
	for i, key := range keys {
		require.NoError(t, db.Check(fmt.Sprintf("gpu-%d:22", i), key))
	}
	content := proctest.ReadFile(t, file)
	require.Equal(t, 20, strings.Count(string(content), "\n"))
	require.NotContains(t, string(content), "gpu-0 ", "hashed")
	require.Contains(t, string(content), "gpu-1 ")
	info := proctest.Try(os.Stat(file)).OK(t)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	var changed *hostkeys.Changed
	require.ErrorAs(t, accept("gpu-1:22", false, ed(t).PublicKey()), &changed, "accept-new takes no other key")
	require.NoError(t, os.WriteFile(file, []byte("cut off"), 0o600))
	require.NoError(t, accept("[::1]:2222", false, keys[0]))
	content = proctest.ReadFile(t, file)
	require.Equal(t, "cut off\n[::1]:2222 "+line(keys[0])+"\n", string(content), "a line of its own")
	require.Error(t, store.Accept(store.Lookup(nil, named("x:22")), keys[0], rules, time.Now()), "no file to add it to")
}

func TestOtherFileTypes(t *testing.T) {
	key, dir := ed(t).PublicKey(), t.TempDir()
	store := hostkeys.NewCache(zerolog.Nop())
	err := db{store, []string{dir}}.Check("gpu:22", key)
	require.ErrorAs(t, err, new(*hostkeys.Unknown))
	require.ErrorContains(t, err, dir+" is not a regular file", "a folder")
	err = db{store, []string{os.DevNull}}.Check("gpu:22", key)
	require.ErrorAs(t, err, new(*hostkeys.Unknown))
	require.NotContains(t, err.Error(), os.DevNull)
}

// FuzzLoad: no content of a file makes a key known that is not in it, and none hides the good line behind it.
func FuzzLoad(f *testing.F) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	key := signer(f, private, err).PublicKey()
	for _, seed := range []string{"", "gpu", "# x", "@cert-authority * ssh-ed25519 A", "|1|a|b ssh-rsa AAAA", "[x ssh-rsa", "@revoked"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "@revoked") {
			return
		}
		db, _ := load(t, text+"\nlast.host "+line(key)+"\n")
		if !strings.Contains(text, strings.Fields(line(key))[1]) {
			require.Error(t, db.Check("other.host:22", key))
		}
		if !strings.Contains(text, "ssh-") && !strings.Contains(text, "ecdsa-") {
			require.NoError(t, db.Check("last.host:22", key))
		}
	})
}
