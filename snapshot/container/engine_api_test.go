package container_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// serve has an engine answer on Docker's socket below a folder.
func serve(t *testing.T, root string, answer http.HandlerFunc) { t.Cleanup(start(t, root, answer)) }

// start is serve, until the returned function is called.
func start(t *testing.T, root string, answer http.HandlerFunc) (stop func()) {
	require.NoError(t, os.MkdirAll(filepath.Join(root, "run"), 0o755))
	listener, err := net.Listen("unix", filepath.Join(root, "run/docker.sock"))
	require.NoError(t, err)
	server := &http.Server{Handler: answer, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	return func() { _ = server.Close(); <-done }
}

func write(t *testing.T, path, content string) {
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

func docker() proc.Place { return proc.Place{ID: id, Runtime: proc.Docker} }

func TestInspectAsksTheEngine(t *testing.T) {
	root := t.TempDir()
	e := container.Engines{Root: root}
	_, err := e.Inspect(t.Context(), docker())
	require.ErrorIs(t, err, container.ErrUnknown, "there is no engine")
	code, body := 200, inspected("/web", running)
	serve(t, root, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/containers/"+id+"/json" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	})
	got, err := e.Inspect(t.Context(), docker())
	require.NoError(t, err)
	require.Equal(t, "web", got.Name)
	code, body = 404, `{"message":"No such container"}`
	_, err = e.Inspect(t.Context(), docker())
	require.ErrorIs(t, err, container.ErrNotFound)
	for _, code = range []int{500, 200} { // an answer that is none
		_, err = e.Inspect(t.Context(), docker())
		require.ErrorIs(t, err, container.ErrUnknown)
	}
	write(t, filepath.Join(root, "var/lib/docker/containers", id, "config.v2.json"), `{"ID":"`+id+`","Name":"/kept"}`)
	code = 500
	got, err = e.Inspect(t.Context(), docker())
	require.NoError(t, err)
	require.Equal(t, "kept", got.Name, "its record")
	write(t, filepath.Join(root, "etc/docker/daemon.json"), `{"data-root":"/data"}`)
	write(t, filepath.Join(root, "data/containers", id, "config.v2.json"), `{"ID":"`+id+`","Name":"/moved"}`)
	got, err = e.Inspect(t.Context(), docker())
	require.NoError(t, err)
	require.Equal(t, "moved", got.Name)
}

// TestHangingEngine: the deadline holds, and the record says what the container is.
func TestHangingEngine(t *testing.T) {
	root := t.TempDir()
	released := make(chan struct{})
	defer close(released)
	serve(t, root, func(http.ResponseWriter, *http.Request) { <-released })
	write(t, filepath.Join(root, "var/lib/docker/containers", id, "config.v2.json"), `{"ID":"`+id+`","Name":"/kept"}`)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	got, err := container.Engines{Root: root}.Inspect(ctx, docker())
	require.NoError(t, err)
	require.Equal(t, "kept", got.Name)
	require.Error(t, ctx.Err(), "it was waited for")
}

// TestRecords are constructed: a bundle of containerd, and a container of Podman.
func TestRecords(t *testing.T) {
	root := t.TempDir()
	bundle := filepath.Join(root, "run/containerd/io.containerd.runtime.v2.task/k8s.io", id)
	write(t, filepath.Join(bundle, "config.json"), `{"annotations":{"nerdctl/name":"job"}}`)
	write(t, filepath.Join(bundle, "init.pid"), "4711")
	storage := filepath.Join(root, "var/lib/containers/storage/overlay-containers")
	write(t, filepath.Join(storage, id, "userdata/config.json"), `{"process":{"env":["GENV_ENVIRONMENT_ID=7"]}}`)
	write(t, filepath.Join(storage, "containers.json"), `[{"id":"`+id+`","names":["pod"]}]`)
	write(t, filepath.Join(root, "run/containers/storage/overlay-containers", id, "userdata/pidfile"), "4712\n")
	e := container.Engines{Root: root}
	got, err := e.Inspect(t.Context(), proc.Place{ID: id, Runtime: proc.Containerd})
	require.NoError(t, err)
	require.False(t, e.Changed(got.Stamp))
	got.Stamp = container.Stamp{}
	require.Equal(t, container.Details{Name: "job", Init: 4711, Labels: map[string]string{"nerdctl/name": "job"}}, got)
	got, err = e.Inspect(t.Context(), proc.Place{ID: id, Runtime: proc.Podman})
	require.NoError(t, err)
	require.False(t, e.Changed(got.Stamp))
	got.Stamp = container.Stamp{}
	require.Equal(t, container.Details{Name: "pod", EID: "7", Init: 4712}, got)
}

func TestStop(t *testing.T) {
	root := t.TempDir()
	e := container.Engines{Root: root}
	require.ErrorIs(t, e.Stop(t.Context(), docker(), time.Second), container.ErrNoEngine)
	code, asked := http.StatusNoContent, ""
	serve(t, root, func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.URL.String()
		w.WriteHeader(code)
	})
	require.NoError(t, e.Stop(t.Context(), docker(), 1500*time.Millisecond))
	require.Equal(t, "POST /containers/"+id+"/stop?t=2", asked)
	code = http.StatusNotModified
	require.NoError(t, e.Stop(t.Context(), docker(), time.Second), "it had stopped")
	code = http.StatusNotFound
	require.ErrorIs(t, e.Stop(t.Context(), docker(), time.Second), container.ErrNotFound)
	code = http.StatusInternalServerError
	require.ErrorContains(t, e.Stop(t.Context(), docker(), time.Second), "HTTP status 500")
}
