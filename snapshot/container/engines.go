package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// ask asks an engine's API on a socket. The error is ErrNotFound without such a container, fs.ErrNotExist without
// engine.
func ask(ctx context.Context, socket, method, path string) ([]byte, error) {
	const maxHeader, maxAnswer = 64 << 10, 4 << 20 // bytes
	if _, err := os.Stat(socket); err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{
		Transport: &http.Transport{
			DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, socket) },
			DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		if shown, ok := errors.AsType[*url.Error](err); ok {
			err = shown.Err // without the meaningless address
		}
		return nil, fmt.Errorf("ask %s: %w", socket, text.Late(err, 0))
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask %s: %w", socket, text.Late(err, 0))
	case len(body) > maxAnswer:
		return nil, fmt.Errorf("ask %s: the answer is longer than %d bytes", socket, maxAnswer)
	case response.StatusCode == http.StatusNotFound:
		return nil, ErrNotFound
	case response.StatusCode/100 != 2 && response.StatusCode != http.StatusNotModified: // already stopped
		return nil, fmt.Errorf("ask %s: HTTP status %d: %s", socket, response.StatusCode,
			text.Quoted(string(body), 200))
	}
	return body, nil
}

// errForeign means that a user's process listens, which could answer anything.
var errForeign = errors.New("it is not root who listens there")

// dial connects to a socket on which only root's engine may listen (or the caller's, in a test).
func dial(ctx context.Context, socket string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err == nil {
		var peer *unix.Ucred
		if peer, err = proc.PeerOf(raw); err == nil && peer.Uid != 0 && int(peer.Uid) != os.Geteuid() {
			err = errForeign
		}
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

var (
	// ErrNotFound means that no container with this id runs, according to its engine.
	ErrNotFound = errors.New("no such container")
	// ErrUnknown means that no engine answered.
	ErrUnknown = errors.New("what the container is could not be found out")
)

// Details is what an engine knows about a container. Texts are printable, and short enough for a snapshot.
type Details struct {
	Name   string // without Docker's leading slash
	Image  string // as named at the container's creation, with its tag
	Labels map[string]string
	EID    snapshot.EnvID // given by genv's shim; empty for none
	Init   snapshot.PID   // the container's first process; 0 if unknown or not running
}

// ParseDocker parses the answer about a container of Docker's API, or Podman's copy of it.
func ParseDocker(data []byte, id string) (Details, error) {
	var d struct {
		ID     string
		Name   string
		Config struct {
			Image  string
			Env    []string
			Labels map[string]string
		}
		State struct {
			Running bool
			Pid     snapshot.PID
		}
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return Details{}, fmt.Errorf("not understood: %w", err)
	}
	if d.ID != id {
		return Details{}, errors.New("not understood: it is about another container")
	}
	details := Details{
		Name: shortened(strings.TrimPrefix(d.Name, "/")), Image: shortened(d.Config.Image), Labels: d.Config.Labels,
	}
	for _, entry := range d.Config.Env {
		if value, found := strings.CutPrefix(entry, snapshot.ClaimVariable+"="); found {
			details.EID = snapshot.Claim(value) // as in a process, the last one counts
		}
	}
	if d.State.Running && d.State.Pid > 0 {
		details.Init = d.State.Pid
	}
	return details, nil
}

func shortened(name string) string { return text.Cut(text.Masked(name), 256) }

// Engines is this machine's Docker and Podman, as far as root runs them.
type Engines struct {
	Root string // before the paths of sockets
}

// sockets lists those of engines to ask. Docker has two unless /var/run is a link to /run.
func (e Engines) sockets(runtime string) (list []string) {
	if runtime == proc.Docker || runtime == "" {
		list = append(list, filepath.Join(e.Root, "/run/docker.sock"), filepath.Join(e.Root, "/var/run/docker.sock"))
	}
	if runtime == proc.Podman || runtime == "" {
		list = append(list, filepath.Join(e.Root, "/run/podman/podman.sock"))
	}
	return list
}

// Inspect asks a container's engine. The error is ErrNotFound, or wraps ErrUnknown if none answers.
func (e Engines) Inspect(ctx context.Context, place proc.Cgroup) (Details, error) {
	missing, failed := false, error(nil)
	for _, socket := range e.sockets(place.Runtime) {
		var details Details
		body, err := ask(ctx, socket, http.MethodGet, "/containers/"+url.PathEscape(place.ID)+"/json")
		if err == nil {
			details, err = ParseDocker(body, place.ID)
		}
		switch {
		case err == nil:
			return details, nil
		case errors.Is(err, ErrNotFound):
			missing = place.Runtime != "" // else an engine without an API may have it
		case !errors.Is(err, fs.ErrNotExist):
			failed = errors.Join(failed, err)
		}
	}
	if missing && failed == nil {
		return Details{}, ErrNotFound
	}
	return Details{}, errors.Join(ErrUnknown, failed)
}

// ErrNoEngine means that no engine with an API has the container.
var ErrNoEngine = errors.New("no container engine that could stop it answers on its socket")

// Stop has the engine send its stop signal and, after grace, SIGKILL. After an error other than ErrNotFound and
// ErrNoEngine the result is unknown.
func (e Engines) Stop(ctx context.Context, place proc.Cgroup, grace time.Duration) error {
	path := fmt.Sprintf("/containers/%s/stop?t=%d", url.PathEscape(place.ID), (grace+time.Second-1)/time.Second)
	result := ErrNoEngine
	for _, socket := range e.sockets(place.Runtime) {
		switch _, err := ask(ctx, socket, http.MethodPost, path); {
		case errors.Is(err, ErrNotFound):
			result = err
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	return result
}
