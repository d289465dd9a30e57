package sshclient

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
)

func TestStopped(t *testing.T) {
	for cause, want := range map[error]string{
		context.DeadlineExceeded:  "a: no answer in time",
		errTimeout{1}:             "a: " + errTimeout{1}.Error(),
		errors.New("interrupted"): "a: stopped: interrupted",
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		err := stopped(ctx, "a")
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, cause)
		require.Equal(t, errors.Is(cause, context.DeadlineExceeded), err.Class == remote.Timeout)
	}
}

// FuzzExitError: whatever a host writes, the message is one printable line.
func FuzzExitError(f *testing.F) {
	for _, text := range []string{"", "sudo: a password is required\n", "sudo: genv: command not found", "\x1b[2J\r\n\xff", strings.Repeat("x", 1000)} {
		f.Add(text, 1)
	}
	f.Fuzz(func(t *testing.T, text string, status int) {
		err := exitError("gpu", status, "", []byte(text), nil)
		require.True(t, utf8.ValidString(err.Error()))
		require.Less(t, len(err.Error()), 4000)
		for _, r := range err.Error() {
			require.True(t, unicode.IsGraphic(r), "%q", err.Error())
		}
		require.Contains(t, []remote.Class{remote.Sudo, remote.SudoRefused, remote.GenvMissing, remote.CommandFailed}, err.Class)
		require.Equal(t, text, err.Stderr)
	})
}

// TestStamps: a refused login is worth another try when there is a master, and not when somebody else touches its path.
func TestStamps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cm")
	none := stampOf(path)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NotEqual(t, none, stampOf(path))
	if os.Geteuid() != 0 {
		require.NotEqual(t, "true", os.Getenv("CI"), "this test has to run as root")
		t.Skip("only root can make a file of another user")
	}
	require.NoError(t, os.Chown(path, 65534, 65534))
	require.Equal(t, none, stampOf(path))
}

type reading struct {
	net.Conn
	io.Reader
}

func (r reading) Read(p []byte) (int, error) { return r.Reader.Read(p) }

// FuzzPreface: what is read begins with the version, and is the rest of what came.
func FuzzPreface(f *testing.F) {
	f.Add([]byte("SSH-2.0-x\r\nrest"))
	f.Add([]byte("noise\nSSH-2.0-x\r\n"))
	f.Add([]byte("SSSH-\nSSH\n\nSS\nSSH-"))
	f.Add([]byte(strings.Repeat("\n", 1024) + "SSH-2.0"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		got, err := io.ReadAll(&afterPreface{Conn: reading{Reader: bytes.NewReader(sent)}})
		if len(got) == 0 {
			require.True(t, err != nil || !bytes.Contains(append([]byte("\n"), sent...), []byte("\nSSH-")))
			return
		}
		require.NoError(t, err)
		require.True(t, bytes.HasPrefix(got, []byte(versionPrefix)))
		require.True(t, bytes.HasSuffix(sent, got))
		before := sent[:len(sent)-len(got)]
		require.True(t, len(before) == 0 || before[len(before)-1] == '\n')
		require.NotContains(t, "\n"+string(before), "\n"+versionPrefix)
	})
}

// counted counts the reads.
type counted struct {
	io.Reader
	reads int
}

func (c *counted) Read(p []byte) (int, error) {
	c.reads++
	return c.Reader.Read(p)
}

// TestAPrefaceCostsLittle: each read is a call of the kernel, and a host may send eight megabytes at each login.
func TestAPrefaceCostsLittle(t *testing.T) {
	noise := strings.Repeat(strings.Repeat("x", 1000)+"\n", 1000)
	source := &counted{Reader: strings.NewReader(noise + "SSH-2.0-x\r\n")}
	got, err := io.ReadAll(&afterPreface{Conn: reading{Reader: source}})
	require.NoError(t, err)
	require.Equal(t, "SSH-2.0-x\r\n", string(got))
	require.Less(t, source.reads, 1000)
}

// TestThePrefacesBufferIsReleased: it would be four kilobytes for each host.
func TestThePrefacesBufferIsReleased(t *testing.T) {
	a := &afterPreface{Conn: reading{Reader: strings.NewReader("noise\nSSH-2.0-x\r\nfirst packet" + strings.Repeat("x", 1<<16))}}
	var version []byte
	for b := make([]byte, 1); !bytes.HasSuffix(version, []byte("\n")); version = append(version, b...) {
		_, err := a.Read(b)
		require.NoError(t, err)
	}
	require.Equal(t, "SSH-2.0-x\r\n", string(version))
	require.NotNil(t, a.buffer)
	rest, err := io.ReadAll(a)
	require.NoError(t, err)
	require.Equal(t, "first packet"+strings.Repeat("x", 1<<16), string(rest))
	require.Nil(t, a.buffer)
}
