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

// FuzzAnswer has an engine answer with any bytes instead of HTTP.
func FuzzAnswer(f *testing.F) {
	ok := "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + inspected("/web", running)
	for _, seed := range []string{ok, "HTTP/1.1 404 Not Found\r\n\r\n", "HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n", "HTTP/1.0 200\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n"} {
		f.Add([]byte(seed))
	}
	root := f.TempDir()
	require.NoError(f, os.Mkdir(filepath.Join(root, "run"), 0o755))
	listener, err := net.Listen("unix", filepath.Join(root, "run/docker.sock"))
	require.NoError(f, err)
	f.Cleanup(func() { _ = listener.Close() })
	f.Fuzz(func(t *testing.T, data []byte) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			if conn, err := listener.Accept(); err == nil {
				_, _ = conn.Read(make([]byte, 4096))
				_, _ = conn.Write(data)
				_ = conn.Close()
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if d, err := (container.Engines{Root: root}).Inspect(ctx, docker()); err == nil {
			checkDetails(t, d)
		}
		<-done
		require.NoError(t, ctx.Err(), "it ends with the connection")
	})
}

// FuzzRecords has any bytes in the files of engines.
func FuzzRecords(f *testing.F) {
	f.Add([]byte(`{"data-root":"/var/lib/docker"}`), []byte(inspected("/web", running)), []byte("4711\n"))
	f.Add([]byte(`{"data-root":"../.."}`), []byte(`{"annotations":{"nerdctl/name":"web"}}`), []byte("-1"))
	f.Add([]byte("\x00"), []byte(`{"process":{"env":["GENV_ENVIRONMENT_ID=1"]}}`), []byte(`[{"id":"`+id+`","names":["web"]}]`))
	root := f.TempDir()
	require.NoError(f, os.Chmod(root, 0o755))
	put := func(t *testing.T, path string, data []byte) {
		require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755))
		_ = os.Remove(filepath.Join(root, path)) // ext4 writes a file at once that is truncated
		require.NoError(t, os.WriteFile(filepath.Join(root, path), data, 0o600))
	}
	f.Fuzz(func(t *testing.T, daemon, record, other []byte) {
		put(t, "etc/docker/daemon.json", daemon)
		put(t, "var/lib/docker/containers/"+id+"/config.v2.json", record)
		put(t, "run/containerd/io.containerd.runtime.v2.task/default/"+id+"/config.json", record)
		put(t, "run/containerd/io.containerd.runtime.v2.task/default/"+id+"/init.pid", other)
		put(t, "var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db", other)
		put(t, "var/lib/containers/storage/overlay-containers/"+id+"/userdata/config.json", record)
		put(t, "var/lib/containers/storage/overlay-containers/containers.json", other)
		put(t, "run/containers/storage/overlay-containers/"+id+"/userdata/pidfile", other)
		for _, runtime := range []string{proc.Docker, proc.Podman, proc.Containerd, ""} {
			if d, err := (container.Engines{Root: root}).Inspect(t.Context(), proc.Place{ID: id, Runtime: runtime}); err == nil {
				checkDetails(t, d)
			}
		}
	})
}
