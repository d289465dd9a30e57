package controlmaster

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pretend is a socket whose server says what a test likes. Real masters are in the
// tests of sshclient.
func pretend(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cm") // t.TempDir can be too long for a socket
	require.NoError(t, err)
	path := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(path, 0o600))
	var all sync.WaitGroup
	all.Go(func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			all.Go(func() { serve(conn); _ = conn.Close() })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); all.Wait(); _ = os.RemoveAll(dir) })
	return path
}

// greet is what a master does first.
func greet(conn net.Conn) {
	_ = send(conn, message(msgHello, uint32(protocol)))
	_, _, _ = receive(conn)
}

// master answers checks, and one request with the packets given.
func master(answers ...packet) func(net.Conn) {
	return func(conn net.Conn) {
		greet(conn)
		for {
			kind, _, err := receive(conn)
			switch {
			case err != nil:
				return
			case kind == msgAliveCheck:
				_ = send(conn, message(msgAlive, uint32(0), uint32(1)))
				continue
			}
			files := make([]byte, 3)
			_, _ = io.ReadFull(conn, files) // the master takes the descriptors that come with these
			for _, a := range answers {
				_ = send(conn, a)
			}
			return
		}
	}
}

func connect(t *testing.T, path string) (*Master, error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	m, err := Dial(ctx, path)
	if err == nil {
		t.Cleanup(func() { _ = m.Close() })
	}
	return m, err
}

func TestAnswers(t *testing.T) {
	opened := message(msgSessionOpened, uint32(0), uint32(7))
	exit := func(status uint32) packet { return message(msgExit, uint32(7), status) }
	for name, tt := range map[string]struct {
		answers     []packet
		start, wait error // nil for none
		status      int
	}{
		"success":              {answers: []packet{opened, exit(0)}},
		"failure":              {answers: []packet{opened, exit(3)}, status: 3},
		"no status":            {answers: []packet{opened}, wait: ErrNoStatus},
		"a status that is cut": {answers: []packet{opened, message(msgExit, uint32(7))}, wait: ErrNoStatus},
		"refused":              {answers: []packet{message(msgFailure, uint32(0), "Session open refused by peer")}, start: ErrRefused},
		"another message":      {answers: []packet{message(msgAlive)}, start: errMalformed},
		"hangs up":             {start: io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := connect(t, pretend(t, master(tt.answers...)))
			require.NoError(t, err)
			s, err := m.NewSession()
			require.NoError(t, err)
			defer s.Close()
			err = s.Start("true")
			if tt.start != nil {
				require.ErrorIs(t, err, tt.start)
				return
			}
			require.NoError(t, err)
			err = s.Wait()
			switch {
			case tt.wait != nil:
				require.ErrorIs(t, err, tt.wait)
			case tt.status == 0:
				require.NoError(t, err)
			default:
				var exit *StatusError
				require.ErrorAs(t, err, &exit)
				require.Equal(t, tt.status, exit.ExitStatus())
			}
		})
	}
}

func TestNoMaster(t *testing.T) {
	for name, serve := range map[string]func(net.Conn){
		"silent":          func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) },
		"hangs up":        func(net.Conn) {},
		"another version": func(conn net.Conn) { _ = send(conn, message(msgHello, uint32(5))); _, _ = io.Copy(io.Discard, conn) },
		"something else":  func(conn net.Conn) { _, _ = io.WriteString(conn, "HTTP/1.1 400\r\n") },
		"no answer": func(conn net.Conn) {
			greet(conn)
			_, _ = io.Copy(io.Discard, conn)
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := connect(t, pretend(t, serve))
			require.Error(t, err)
		})
	}
	_, err := connect(t, filepath.Join(t.TempDir(), "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
	path := pretend(t, master())
	require.NoError(t, os.Symlink(path, path+"-link"))
	_, err = connect(t, path+"-link")
	require.ErrorContains(t, err, "not a socket")
}

func FuzzReceive(f *testing.F) {
	var whole bytes.Buffer
	_ = send(&whole, message(msgFailure, uint32(1), "no"))
	f.Add(whole.Bytes())
	f.Add([]byte{0, 0, 0, 8, 0x80, 0, 0, 3, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, sent []byte) {
		kind, p, err := receive(bytes.NewReader(sent))
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(p), maxPacket)
		id, _ := p.number()
		text, ok := p.text()
		var again bytes.Buffer
		require.NoError(t, send(&again, message(kind, id, text)))
		if ok {
			require.True(t, bytes.HasPrefix(sent[4:], again.Bytes()[4:]))
		}
	})
}
