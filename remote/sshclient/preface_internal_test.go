package sshclient

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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

// TestAPrefaceCostsLittle: each read is a call of the kernel, and a host may send eight
// megabytes at each login.
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
