package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// maxAnswer bounds an answer of an engine, in bytes.
const maxAnswer = 4 << 20

// maxHeader bounds the header of an answer, in bytes.
const maxHeader = 64 << 10

// api is an engine's API on a unix socket.
type api struct{ socket string }

// errStatus is an answer that is not the one asked for.
type errStatus struct {
	code    int
	message string
}

func (e *errStatus) Error() string {
	return fmt.Sprintf("HTTP status %d: %s", e.code, text.Quoted(e.message, 200))
}

// inspect asks about a container. The error is ErrNotFound if the engine has none with
// this id; with fs.ErrNotExist there is no such engine.
func (a api) inspect(ctx context.Context, id string) (Details, error) {
	body, err := a.do(ctx, http.MethodGet, "/containers/"+url.PathEscape(id)+"/json")
	if err != nil {
		return Details{}, err
	}
	return ParseDocker(body, id)
}

// stop has the engine stop a container: it sends the container's stop signal, waits, and
// kills it. It returns when the container has stopped.
func (a api) stop(ctx context.Context, id string, grace time.Duration) error {
	seconds := int((grace + time.Second - 1) / time.Second)
	_, err := a.do(ctx, http.MethodPost, "/containers/"+url.PathEscape(id)+"/stop?t="+strconv.Itoa(seconds))
	var status *errStatus
	if errors.As(err, &status) && status.code == http.StatusNotModified {
		return nil // it had stopped already
	}
	return err
}

func (a api) do(ctx context.Context, method, path string) ([]byte, error) {
	if _, err := os.Stat(a.socket); err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{
		Transport: &http.Transport{
			DialContext: a.dial, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", a.socket, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask %s: %w", a.socket, err)
	case len(body) > maxAnswer:
		return nil, fmt.Errorf("ask %s: the answer is longer than %d bytes", a.socket, maxAnswer)
	case response.StatusCode == http.StatusNotFound:
		return nil, ErrNotFound
	case response.StatusCode/100 != 2:
		return nil, fmt.Errorf("ask %s: %w", a.socket, &errStatus{response.StatusCode, string(body)})
	}
	return body, nil
}

// errForeign: a user's process listens, and could say anything.
var errForeign = errors.New("it is not root who listens there")

// dial connects to the socket, on which only root's engine may listen (or the caller's, in
// a test).
func (a api) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", a.socket)
	if err != nil {
		return nil, err
	}
	if err := checkPeer(conn.(*net.UnixConn)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func checkPeer(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var peerErr error
	if err := raw.Control(func(fd uintptr) { peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	if peerErr != nil {
		return peerErr
	}
	if peer.Uid != 0 && int(peer.Uid) != os.Geteuid() {
		return errForeign
	}
	return nil
}
