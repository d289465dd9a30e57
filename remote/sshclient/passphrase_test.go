package sshclient_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
)

// lock puts a login key behind the passphrase "secret" next to the fake's own. The key
// was made with `ssh-keygen -a 1`: with the usual 16 rounds of its key derivation, the
// race detector needs many seconds for each use.
func (f *fake) lock(name string) string {
	text, err := os.ReadFile("testdata/locked_ed25519")
	require.NoError(f.t, err)
	var locked *ssh.PassphraseMissingError
	_, err = ssh.ParseRawPrivateKey(text)
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
		ConfigFile: f.config("IdentityFile " + key), ConnectTimeout: 500 * time.Millisecond,
		Prompt: func(string) ([]byte, error) { time.Sleep(800 * time.Millisecond); return []byte("secret"), nil },
	})
	_, err := c.Run(t.Context(), gpu, snapshot)
	require.NoError(t, err)
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
	_, err := c.Run(t.Context(), gpu, snapshot)
	require.NoError(t, err)
}
