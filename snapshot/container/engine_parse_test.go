package container_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// inspected is what Docker's API answers, and, with "ID" for "Id", what is in
// config.v2.json: constructed after the answers of dockerd 20.10.
func inspected(name, state string) string {
	return `{"Id":"` + id + `","Created":"2025-03-01T11:00:00Z","Path":"python","Name":"` + name + `","Image":"sha256:0123",` +
		`"Config":{"Hostname":"4c01db0b339c","Env":["PATH=/bin","GENV_ENVIRONMENT_ID=4242"],"Image":"pytorch:24.10","Labels":{"team":"vision"}},"State":` + state + `}`
}

const running = `{"Status":"running","Running":true,"Pid":4711,"StartedAt":"2025-03-01T12:00:00.5Z"}`

func TestParseDocker(t *testing.T) {
	web := container.Details{
		Name: "web", Image: "pytorch:24.10", Labels: map[string]string{"team": "vision"}, EID: "4242", Init: 4711,
	}
	stopped := web
	stopped.Init = 0
	for name, row := range map[string]struct {
		text string
		want container.Details
	}{
		"running":          {inspected("/web", running), web},
		"of Podman":        {inspected("web", running), web},
		"config.v2.json":   {strings.Replace(inspected("/web", running), `"Id"`, `"ID"`, 1), web},
		"stopped":          {inspected("/web", `{"Running":false,"Pid":0,"StartedAt":"2025-03-01T12:00:00.5Z"}`), stopped},
		"a PID, not alive": {inspected("/web", `{"Running":false,"Pid":4711}`), stopped},
	} {
		got, err := container.ParseDocker([]byte(row.text), id)
		require.NoError(t, err, name)
		require.Equal(t, row.want, got, name)
	}
	got, err := container.ParseDocker([]byte(inspected(`/a\u001b[2J`+strings.Repeat("x", 500), running)), id)
	require.NoError(t, err)
	require.Equal(t, "a?[2J"+strings.Repeat("x", 251), got.Name, "printable, and not too long")
	for name, text := range map[string]string{
		"nothing": "", "a list": "[]", "an error": `{"message":"No such container"}`, "a null": "null",
		"another container": strings.Replace(inspected("/web", running), id, strings.Repeat("0", 64), 1),
	} {
		_, err := container.ParseDocker([]byte(text), id)
		require.Error(t, err, name)
	}
}

// TestWhichEnvironmentAContainerWasStartedIn: the last variable counts, as for a process,
// and an id that can't be shown has another one.
func TestWhichEnvironmentAContainerWasStartedIn(t *testing.T) {
	for env, want := range map[string]snapshot.EnvID{
		``: "", `"PATH=/bin"`: "", `"GENV_ENVIRONMENT_ID=7"`: "7", `"GENV_ENVIRONMENT_ID=7","GENV_ENVIRONMENT_ID=8"`: "8",
		`"GENV_ENVIRONMENT_ID="`: "", `"GENV_ENVIRONMENT_ID=a\nb"`: "odd-7e18f737311b2dc3", `"XGENV_ENVIRONMENT_ID=7"`: "",
	} {
		got, err := container.ParseDocker([]byte(`{"Id":"`+id+`","Config":{"Env":[`+env+`]}}`), id)
		require.NoError(t, err)
		require.Equal(t, want, got.EID, env)
	}
}

// The bundles are constructed after the annotations of containerd's CRI, nerdctl and CRI-O.
func TestParseBundle(t *testing.T) {
	for name, row := range map[string]struct{ annotations, name, image string }{
		"Kubernetes with containerd": {`"io.kubernetes.cri.container-name":"trainer","io.kubernetes.cri.sandbox-name":"job-0","io.kubernetes.cri.sandbox-namespace":"ml","io.kubernetes.cri.image-name":"docker.io/lab/train:1"`, "ml/job-0/trainer", "docker.io/lab/train:1"},
		"Kubernetes with CRI-O":      {`"io.kubernetes.container.name":"trainer","io.kubernetes.pod.name":"job-0","io.kubernetes.pod.namespace":"ml","io.kubernetes.cri-o.ImageName":"lab/train:1"`, "ml/job-0/trainer", "lab/train:1"},
		"nerdctl":                    {`"nerdctl/name":"web","nerdctl/namespace":"default"`, "web", ""},
		"none":                       {``, "", ""},
	} {
		got, err := container.ParseBundle([]byte(`{"ociVersion":"1.0.2","process":{"args":["sleep"],"env":["GENV_ENVIRONMENT_ID=4242"]},"annotations":{` + row.annotations + `}}`))
		require.NoError(t, err, name)
		require.Equal(t, row.name, got.Name, name)
		require.Equal(t, row.image, got.Image, name)
		require.Equal(t, snapshot.EnvID("4242"), got.EID, name)
		require.Zero(t, got.Init, name)
	}
	_, err := container.ParseBundle([]byte("x"))
	require.Error(t, err)
}

// Constructed after containers.json of containers/storage 1.43.
func TestParseStorage(t *testing.T) {
	list := `[{"id":"` + strings.Repeat("0", 64) + `","names":["other"]},{"id":"` + id + `","names":["web"],"image":"0123","metadata":"{\"image-name\":\"docker.io/library/pytorch:24.10\",\"name\":\"web\"}"}]`
	name, image, err := container.ParseStorage([]byte(list), id)
	require.NoError(t, err)
	require.Equal(t, []string{"web", "docker.io/library/pytorch:24.10"}, []string{name, image})
	name, image, err = container.ParseStorage([]byte(list), strings.Repeat("0", 64))
	require.NoError(t, err)
	require.Equal(t, []string{"other", ""}, []string{name, image})
	_, _, err = container.ParseStorage([]byte(list), strings.Repeat("1", 64))
	require.ErrorIs(t, err, container.ErrNotFound)
	_, _, err = container.ParseStorage([]byte("{"), id)
	require.Error(t, err)
}

// TestParseStorageOfPodman is what Podman 4.3.1 has written, recorded, and what it is after a
// `podman rename`, which leaves the metadata (constructed).
func TestParseStorageOfPodman(t *testing.T) {
	const of = "278694f4fbcf41efaff26d5c0e03e924d8356f5431a311591c66dd230c41d23e"
	recorded := `[{"id":"` + of + `","names":["web"],"image":"","layer":"c3a351c45218a147461c7408ed8de063bad2eb290bb8487dfe51bc7304d40217",` +
		`"metadata":"{\"image-name\":\"\",\"image-id\":\"\",\"name\":\"web\",\"created-at\":1795400297}",` +
		`"created":"2026-11-23T02:18:17.906591678Z","flags":{"MountLabel":"","ProcessLabel":""}}]`
	name, _, err := container.ParseStorage([]byte(recorded), of)
	require.NoError(t, err)
	require.Equal(t, "web", name)
	name, _, err = container.ParseStorage([]byte(strings.Replace(recorded, `["web"]`, `["shop"]`, 1)), of)
	require.NoError(t, err)
	require.Equal(t, "shop", name)
}

// FuzzParse: whatever an engine says, a snapshot with it can be sent and read.
func FuzzParse(f *testing.F) {
	f.Add([]byte(inspected("/web", running)))
	f.Add([]byte(`{"process":{"env":["GENV_ENVIRONMENT_ID=1"]},"annotations":{"nerdctl/name":"web"}}`))
	f.Add([]byte(`[{"id":"` + id + `","names":["web"],"metadata":"{\"image-name\":\"a\"}"}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if d, err := container.ParseDocker(data, id); err == nil {
			checkDetails(t, d)
		}
		if d, err := container.ParseBundle(data); err == nil {
			checkDetails(t, d)
		}
		if name, image, err := container.ParseStorage(data, id); err == nil {
			checkDetails(t, container.Details{Name: name, Image: image})
		}
	})
}

// checkDetails says that a snapshot with what an engine says can be sent and read.
func checkDetails(t *testing.T, d container.Details) {
	t.Helper()
	for _, text := range []string{d.Name, d.Image} {
		require.NoError(t, snapshot.CheckText("name", text))
		require.True(t, utf8.ValidString(text))
	}
	require.Equal(t, d.EID, snapshot.Claim(string(d.EID)))
	require.GreaterOrEqual(t, int(d.Init), 0)
	labels, _ := snapshot.BoundedLabels(d.Labels)
	require.LessOrEqual(t, len(labels), snapshot.MaxContainerLabels)
	for key, value := range labels {
		require.NoError(t, snapshot.CheckText("label", key))
		require.NoError(t, snapshot.CheckText("label", value))
	}
}

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
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, container.Engines{Root: root}.Stop(ctx, docker(), time.Second), "docker.sock: no answer in time")
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
	require.Equal(t, container.Details{Name: "job", Unknown: true, Init: 4711, Labels: map[string]string{"nerdctl/name": "job"}}, got)
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
