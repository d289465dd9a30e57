package socket

import (
	"bufio"
	"cmp"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func text(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) }
}

// serveText serves a text until the end of the test, and returns where.
func serveText(t *testing.T, body string) (address string) {
	listener := proctest.Try(ListenTCP(t.Context(), "127.0.0.1", 0)).OK(t)
	_, stop := Serve(listener, text(body))
	t.Cleanup(stop)
	return listener.Addr().String()
}

// dial connects from an address of loopback.
func dial(t *testing.T, from, to string) net.Conn {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c := proctest.Try(dialer.DialContext(t.Context(), "tcp", to)).OK(t)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	return c
}

// ask asks once, and returns what follows the answer.
func ask(t *testing.T, c net.Conn) *bufio.Reader {
	proctest.Try(io.WriteString(c, "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n")).OK(t)
	answer := bufio.NewReader(c)
	response, err := http.ReadResponse(answer, &http.Request{Method: http.MethodHead})
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
	return answer
}

// TestClients: those that send nothing, or don't read, hold up neither the others nor the end.
func TestClients(t *testing.T) {
	listener := proctest.Try(ListenTCP(t.Context(), "127.0.0.1", 0)).OK(t)
	_, stop := Serve(listener, text(strings.Repeat("x", 64<<20)))
	client := func() net.Conn { return dial(t, "127.0.0.1", listener.Addr().String()) }
	for range 20 {
		client()                                                                                 // sends nothing
		proctest.Try(io.WriteString(client(), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")).OK(t) // reads nothing
	}
	huge := client()
	_, _ = io.WriteString(huge, "GET / HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", 64<<10)) // it may be refused before the end
	status, err := bufio.NewReader(huge).ReadString('\n')
	if err == nil { // else the connection was reset
		require.Contains(t, status, "431")
	}
	ask(t, client())

	begun := time.Now()
	stop()
	require.Less(t, time.Since(begun), 10*time.Second)
	require.Error(t, proctest.Try(net.Dial("tcp", listener.Addr().String())).Err)
}

// TestManyClients: someone who keeps as many connections as there may be can't shut others out, and
// the program doesn't keep them all.
func TestManyClients(t *testing.T) {
	server := serveText(t, "x")
	first := ask(t, dial(t, "127.0.0.1", server))
	for range 2 * maxConnections {
		ask(t, dial(t, "127.0.0.1", server))
	}
	require.ErrorIs(t, proctest.Try(first.ReadByte()).Err, io.EOF, "the oldest one was closed")
}

// TestOneClientOpensMany: what it opens costs no other client a connection, such as an administrator
// who waits for an answer.
func TestOneClientOpensMany(t *testing.T) {
	server := serveText(t, "x")
	other := dial(t, "127.0.0.2", server)
	ask(t, other)
	for range maxConnections + 50 {
		ask(t, dial(t, "127.0.0.1", server))
	}
	ask(t, other)
}

// TestClientsThatDontRead are dropped, whatever is written for them and however.
func TestClientsThatDontRead(t *testing.T) {
	for name, write := range map[string]func(http.ResponseWriter) error{
		"one large answer": func(w http.ResponseWriter) error {
			_, err := w.Write(make([]byte, 64<<20))
			return err
		},
		"a stream": func(w http.ResponseWriter) error {
			for {
				_, err := io.WriteString(w, strings.Repeat("x", 1000))
				if err = cmp.Or(err, http.NewResponseController(w).Flush()); err != nil {
					return err
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			failed := make(chan error, 1)
			server := httptest.NewServer(patient(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { failed <- write(w) }), 50*time.Millisecond))
			defer server.Close()
			conn := proctest.Try(net.Dial("tcp", server.Listener.Addr().String())).OK(t)
			defer conn.Close()
			proctest.Try(io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")).OK(t)
			require.ErrorIs(t, <-failed, os.ErrDeadlineExceeded)
		})
	}
}

// TestASlowAnswer may take longer than a piece of it.
func TestASlowAnswer(t *testing.T) {
	server := httptest.NewServer(patient(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 5 {
			time.Sleep(150 * time.Millisecond)
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
		}
	}), 500*time.Millisecond))
	defer server.Close()
	response, err := server.Client().Get(server.URL)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, "xxxxx", string(proctest.Try(io.ReadAll(response.Body)).OK(t)))
}

// TestASlowLoris sends its request a byte at a time.
func TestASlowLoris(t *testing.T) {
	conn := proctest.Try(net.Dial("tcp", serveText(t, "x"))).OK(t)
	defer conn.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, c := range "GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 10_000) {
			if _, err := conn.Write([]byte(string(c))); err != nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Error("it was never dropped")
	}()
	<-ended
}

func TestAPortThatCannotBeUsed(t *testing.T) {
	taken := proctest.Try(net.Listen("tcp", "127.0.0.1:0")).OK(t)
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	_, err := ListenTCP(t.Context(), "127.0.0.1", port)
	require.ErrorContains(t, err, "another program serves on 127.0.0.1:")
	require.ErrorContains(t, err, "or choose another port")
	require.ErrorContains(t, proctest.Try(ListenTCP(t.Context(), "192.0.2.77", 0)).Err, "192.0.2.77 is not an address of this machine")
}

func TestParseLogin(t *testing.T) {
	for text, want := range map[string]snapshot.UID{"1000": 1000, "0\n": 0, "4294967294": 4294967294} {
		require.Equal(t, &want, parseLogin(text))
	}
	for _, text := range []string{"4294967295", "", "-1", "x", "99999999999"} {
		require.Nil(t, parseLogin(text), text)
	}
}

// Without a connection the PID alone names the process, if it is there.
func TestLoginOfAProcess(t *testing.T) {
	var want *snapshot.UID
	if data, err := os.ReadFile("/proc/self/loginuid"); err == nil {
		want = parseLogin(string(data))
	}
	require.Equal(t, want, loginOf(-1, snapshot.PID(os.Getpid())))
	require.Nil(t, loginOf(-1, 1<<30))
}
