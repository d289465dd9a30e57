package sshclient_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"math/big"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// authenticator is a FIDO authenticator with one key, in software, and the agent that has it (PROTOCOL.u2f of OpenSSH).
type authenticator struct {
	agent.Agent // a keyring without the key
	private     crypto.Signer
	public      ssh.PublicKey
	touched     bool
	refuses     bool
	hangs       <-chan struct{} // the agent does not answer until it is closed
	counter     atomic.Uint32
}

const application = "ssh:"

func newAuthenticator(t testing.TB, kind string) *authenticator {
	t.Helper()
	a := &authenticator{Agent: agent.NewKeyring(), touched: true}
	var blob []byte
	switch kind {
	case ssh.KeyAlgoSKED25519:
		public, private, err := ed25519.GenerateKey(rand.Reader)
		require.NoError(t, err)
		a.private, blob = private, ssh.Marshal(struct {
			Kind        string
			Key         []byte
			Application string
		}{kind, public, application})
	case ssh.KeyAlgoSKECDSA256:
		private := proctest.Try(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).OK(t)
		point := proctest.Try(private.PublicKey.Bytes()).OK(t)
		a.private, blob = private, ssh.Marshal(struct {
			Kind, Curve string
			Key         []byte
			Application string
		}{kind, "nistp256", point, application})
	}
	a.public = proctest.Try(ssh.ParsePublicKey(blob)).OK(t)
	return a
}

func (a *authenticator) List() ([]*agent.Key, error) {
	others, err := a.Agent.List()
	return append([]*agent.Key{{Format: a.public.Type(), Blob: a.public.Marshal(), Comment: "fido"}}, others...), err
}

func (a *authenticator) Sign(key ssh.PublicKey, data []byte) (*ssh.Signature, error) {
	return a.SignWithFlags(key, data, 0)
}

func (a *authenticator) SignWithFlags(key ssh.PublicKey, data []byte, _ agent.SignatureFlags) (*ssh.Signature, error) {
	if string(key.Marshal()) != string(a.public.Marshal()) {
		return a.Agent.Sign(key, data)
	}
	if a.hangs != nil {
		<-a.hangs
	}
	if a.refuses {
		return nil, errors.New("refused")
	}
	rest := binary.BigEndian.AppendUint32([]byte{0}, a.counter.Add(1))
	if a.touched {
		rest[0] = 1 // user presence
	}
	app, message := sha256.Sum256([]byte(application)), sha256.Sum256(data)
	signed := append(append(app[:], rest...), message[:]...)
	signature := &ssh.Signature{Format: key.Type(), Rest: rest}
	if private, ok := a.private.(ed25519.PrivateKey); ok {
		signature.Blob = ed25519.Sign(private, signed)
		return signature, nil
	}
	digest := sha256.Sum256(signed)
	r, s, err := ecdsa.Sign(rand.Reader, a.private.(*ecdsa.PrivateKey), digest[:])
	signature.Blob = ssh.Marshal(struct{ R, S *big.Int }{r, s})
	return signature, err
}

func (a *authenticator) Extension(string, []byte) ([]byte, error) {
	return nil, agent.ErrExtensionUnsupported
}

// accept lets the server accept a key, with options of sshd(8), authorized_keys.
func (s *sshd) accept(t testing.TB, options string, key ssh.PublicKey) {
	t.Helper()
	s.write(t, "authorized", s.read(t, "authorized")+options+string(ssh.MarshalAuthorizedKey(key)))
}

func TestFIDOKeys(t *testing.T) {
	s := startSSHD(t)
	for _, kind := range []string{ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256} {
		for name, tt := range map[string]struct {
			options string // in authorized_keys
			change  func(*authenticator)
			lines   []string
			fails   remote.Class
			says    string
		}{
			"touched":                       {change: func(*authenticator) {}},
			"no touch required":             {options: "no-touch-required ", change: func(a *authenticator) { a.touched = false }},
			"not touched":                   {change: func(a *authenticator) { a.touched = false }, fails: remote.Auth, says: "tried " + kind},
			"the agent refuses":             {change: func(a *authenticator) { a.refuses = true }, fails: remote.Auth, says: "was accepted but cannot sign"},
			"not touched, with another key": {change: func(a *authenticator) { a.touched = false }, lines: []string{"IdentityFile " + s.file("id")}},
			"refused, with another key":     {change: func(a *authenticator) { a.refuses = true }, lines: []string{"IdentityFile " + s.file("id")}},
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				device := newAuthenticator(t, kind)
				tt.change(device)
				s.accept(t, tt.options, device.public)
				config := s.agentConfig(t, testfleet.ServeAgent(t, device), tt.lines...)
				_, err := newClient(t, sshclient.Options{ConfigFile: config}).Run(t.Context(), gpu, sh("true"))
				requireClass(t, tt.fails, err, tt.says)
			})
		}
	}
}

// TestFIDOKeyFileWithoutAgent: the key file of a FIDO key has no private key in it.
func TestFIDOKeyFileWithoutAgent(t *testing.T) {
	s := startSSHD(t)
	device := newAuthenticator(t, ssh.KeyAlgoSKED25519)
	s.accept(t, "", device.public)
	s.write(t, "sk", device.keyFile())
	err := failure(t, newClient(t, sshclient.Options{ConfigFile: s.only(t, s.file("sk"))}), gpu, sh("true"), remote.Auth)
	require.ErrorContains(t, err, "sk is a FIDO key, which genv uses through an agent only: ssh-add")
}

// keyFile is the file that ssh-keygen -t ed25519-sk writes: the handle is only of use
// to the device (PROTOCOL.key of OpenSSH).
func (a *authenticator) keyFile() string {
	private := ssh.Marshal(struct {
		Check, Again uint32
		Kind         string
		Key          []byte
		Application  string
		Flags        byte
		Handle, Rest string
		Comment      string
		Padding      [3]byte
	}{7, 7, a.public.Type(), a.private.Public().(ed25519.PublicKey), application, 1, "handle", "", "fido", [3]byte{1, 2, 3}})
	file := ssh.Marshal(struct {
		Cipher, KDF, Options string
		Keys                 uint32
		Public, Private      []byte
	}{"none", "none", "", 1, a.public.Marshal(), private})
	return string(pem.EncodeToMemory(&pem.Block{Type: "OPENSSH PRIVATE KEY", Bytes: append([]byte("openssh-key-v1\x00"), file...)}))
}

// TestAgentThatWaitsForItsUser: when the key is not touched, the login continues with
// another one, although its deadline has passed; and the next ones don't wait.
func TestAgentThatWaitsForItsUser(t *testing.T) {
	s := startSSHD(t)
	device := newAuthenticator(t, ssh.KeyAlgoSKED25519)
	hangs := make(chan struct{})
	t.Cleanup(func() { close(hangs) })
	device.hangs = hangs
	s.accept(t, "", device.public)
	options := sshclient.Options{ConnectTimeout: 5 * time.Second}
	t.Run("there is another key", func(t *testing.T) {
		t.Parallel() // it waits for the deadline of a request to an agent
		options := options
		options.ConfigFile = s.agentConfig(t, testfleet.ServeAgent(t, device), "IdentityFile "+s.file("id"))
		c := newClient(t, options)
		runs(t, c, gpu, sh("true"))
		begun := time.Now()
		runs(t, c, remote.Host{Name: "gpu-2"}, sh("true"))
		require.Less(t, time.Since(begun), 9*time.Second, "the agent is not asked again")
	})
	t.Run("there is no other", func(t *testing.T) {
		t.Parallel()
		options := options
		options.ConfigFile = s.agentConfig(t, testfleet.ServeAgent(t, device))
		fails(t, newClient(t, options), gpu, sh("true"), remote.Auth, "does it wait for a touch")
	})
}
