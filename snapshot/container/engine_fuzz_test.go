package container_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

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
