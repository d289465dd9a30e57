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
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// maxAnswer bounds an answer of an engine, in bytes.
const maxAnswer = 4 << 20

// maxHeader bounds the header of an answer, in bytes.
const maxHeader = 64 << 10

// api is an engine's API on a unix socket.
type api struct{ socket string }

// inspect asks about a container. The error is ErrNotFound if the engine has none with this id; fs.ErrNotExist for no
// engine.
func (a api) inspect(ctx context.Context, id string) (Details, error) {
	body, err := a.do(ctx, http.MethodGet, "/containers/"+url.PathEscape(id)+"/json")
	if err != nil {
		return Details{}, err
	}
	return ParseDocker(body, id)
}

// stop has the engine stop a container: it sends the container's stop signal, waits, and kills it.
func (a api) stop(ctx context.Context, id string, grace time.Duration) error {
	seconds := int((grace + time.Second - 1) / time.Second)
	_, err := a.do(ctx, http.MethodPost, "/containers/"+url.PathEscape(id)+"/stop?t="+strconv.Itoa(seconds))
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
		if shown, ok := errors.AsType[*url.Error](err); ok {
			err = shown.Err // without the address, which says nothing
		}
		return nil, fmt.Errorf("ask %s: %w", a.socket, text.Late(err, 0))
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask %s: %w", a.socket, text.Late(err, 0))
	case len(body) > maxAnswer:
		return nil, fmt.Errorf("ask %s: the answer is longer than %d bytes", a.socket, maxAnswer)
	case response.StatusCode == http.StatusNotFound:
		return nil, ErrNotFound
	case response.StatusCode/100 != 2 && response.StatusCode != http.StatusNotModified: // it had stopped already
		return nil, fmt.Errorf("ask %s: HTTP status %d: %s", a.socket, response.StatusCode,
			text.Quoted(string(body), 200))
	}
	return body, nil
}

// errForeign: a user's process listens, and could say anything.
var errForeign = errors.New("it is not root who listens there")

// dial connects to the socket, on which only root's engine may listen (or the caller's, in a test).
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
	peer, err := proc.PeerOf(raw)
	if err == nil && peer.Uid != 0 && int(peer.Uid) != os.Geteuid() {
		err = errForeign
	}
	return err
}

var (
	// ErrNotFound means that an engine that would have to know the container does not: no container with this id runs.
	ErrNotFound = errors.New("no such container")
	// ErrUnknown means that no engine answered.
	ErrUnknown = errors.New("what the container is could not be found out")
)

// Details are what an engine knows about a container. Texts are printable, and short enough for a snapshot.
type Details struct {
	Name   string // without Docker's leading slash
	Image  string // as it was named when the container was made, with its tag
	Labels map[string]string
	EID    snapshot.EnvID // the environment that genv's shim gave to the container; empty for none
	Init   snapshot.PID   // the container's first process; 0 if it is unknown or doesn't run
}

// ParseDocker reads the answer about a container of Docker's API, or Podman's copy of it. The error says what is wrong.
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
		EID: claimIn(d.Config.Env),
	}
	if d.State.Running && d.State.Pid > 0 {
		details.Init = d.State.Pid
	}
	return details, nil
}

func claimIn(environ []string) (eid snapshot.EnvID) {
	for _, entry := range environ {
		if value, found := strings.CutPrefix(entry, snapshot.ClaimVariable+"="); found {
			eid = snapshot.Claim(value) // as in a process, the last one counts
		}
	}
	return eid
}

// maxName is the maximum length of a name or an image, in bytes.
const maxName = 256

func shortened(name string) string { return text.Cut(text.Masked(name), maxName) }

// Engines are the container engines of this machine that root runs, Docker and Podman.
type Engines struct {
	Root string // put before the paths of their sockets; empty for none
}

// apis are those that may know a container. Docker's second socket is where /var/run isn't a link to /run.
func (e Engines) apis(runtime string) (list []api) {
	docker, podman := []string{"/run/docker.sock", "/var/run/docker.sock"}, []string{"/run/podman/podman.sock"}
	var sockets []string
	switch runtime {
	case proc.Docker:
		sockets = docker
	case proc.Podman:
		sockets = podman
	case "":
		sockets = slices.Concat(docker, podman)
	}
	for _, socket := range sockets {
		list = append(list, api{filepath.Join(e.Root, socket)})
	}
	return list
}

// Inspect asks the engine of a container. The error is ErrNotFound, or wraps ErrUnknown if none answers.
func (e Engines) Inspect(ctx context.Context, place proc.Cgroup) (Details, error) {
	missing, failed := false, error(nil)
	for _, api := range e.apis(place.Runtime) {
		details, err := api.inspect(ctx, place.ID)
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

// ErrNoEngine means that no engine with an API has this container: none can stop it.
var ErrNoEngine = errors.New("no container engine that could stop it answers on its socket")

// Stop has the engine stop a container: stop signal, grace, SIGKILL; it returns then. The error is ErrNotFound, or may
// wrap ErrNoEngine; after any other one it is unknown whether it stops.
func (e Engines) Stop(ctx context.Context, place proc.Cgroup, grace time.Duration) error {
	result := ErrNoEngine
	for _, api := range e.apis(place.Runtime) {
		switch err := api.stop(ctx, place.ID, grace); {
		case errors.Is(err, ErrNotFound):
			result = err
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	return result
}
