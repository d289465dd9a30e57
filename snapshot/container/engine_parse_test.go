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
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// inspected is what Docker's API answers: constructed after the answers of dockerd 20.10.
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
		"stopped":          {inspected("/web", `{"Running":false,"Pid":0,"StartedAt":"2025-03-01T12:00:00.5Z"}`), stopped},
		"a PID, not alive": {inspected("/web", `{"Running":false,"Pid":4711}`), stopped},
	} {
		got := proctest.Try(container.ParseDocker([]byte(row.text), id)).OK(t, name)
		require.Equal(t, row.want, got, name)
	}
	got := proctest.Try(container.ParseDocker([]byte(inspected(`/a\u001b[2J`+strings.Repeat("x", 500), running)), id)).OK(t)
	require.Equal(t, "a?[2J"+strings.Repeat("x", 251), got.Name, "printable, and not too long")
	for name, text := range map[string]string{
		"nothing": "", "a list": "[]", "an error": `{"message":"No such container"}`, "a null": "null",
		"another container": strings.Replace(inspected("/web", running), id, strings.Repeat("0", 64), 1),
	} {
		require.Error(t, proctest.Try(container.ParseDocker([]byte(text), id)).Err, name)
	}
}

// TestWhichEnvironmentAContainerWasStartedIn: the last variable counts, as for a process,
// and an id that can't be shown has another one.
func TestWhichEnvironmentAContainerWasStartedIn(t *testing.T) {
	for env, want := range map[string]snapshot.EnvID{
		``: "", `"PATH=/bin"`: "", `"GENV_ENVIRONMENT_ID=7"`: "7", `"GENV_ENVIRONMENT_ID=7","GENV_ENVIRONMENT_ID=8"`: "8",
		`"GENV_ENVIRONMENT_ID="`: "", `"GENV_ENVIRONMENT_ID=a\nb"`: "odd-7e18f737311b2dc3", `"XGENV_ENVIRONMENT_ID=7"`: "",
	} {
		got := proctest.Try(container.ParseDocker([]byte(`{"Id":"`+id+`","Config":{"Env":[`+env+`]}}`), id)).OK(t)
		require.Equal(t, want, got.EID, env)
	}
}

// FuzzParse: whatever an engine says, a snapshot with it can be sent and read.
func FuzzParse(f *testing.F) {
	f.Add([]byte(inspected("/web", running)))
	f.Fuzz(func(t *testing.T, data []byte) {
		if d, err := container.ParseDocker(data, id); err == nil {
			checkDetails(t, d)
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
	listener := proctest.Try(net.Listen("unix", filepath.Join(root, "run/docker.sock"))).OK(t)
	server := &http.Server{Handler: answer, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	return func() { _ = server.Close(); <-done }
}

func write(t *testing.T, path, content string) {
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

func docker() proc.Cgroup { return proc.Cgroup{ID: id, Runtime: proc.Docker} }

func TestInspectAsksTheEngine(t *testing.T) {
	root := t.TempDir()
	e := container.Engines{Root: root}
	require.ErrorIs(t, proctest.Try(e.Inspect(t.Context(), docker())).Err, container.ErrUnknown, "there is no engine")
	code, body := 200, inspected("/web", running)
	serve(t, root, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/containers/"+id+"/json" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	})
	got := proctest.Try(e.Inspect(t.Context(), docker())).OK(t)
	require.Equal(t, "web", got.Name)
	code, body = 404, `{"message":"No such container"}`
	_, err := e.Inspect(t.Context(), docker())
	require.ErrorIs(t, err, container.ErrNotFound)
	for _, code = range []int{500, 200} { // an answer that is none
		require.ErrorIs(t, proctest.Try(e.Inspect(t.Context(), docker())).Err, container.ErrUnknown)
	}
	code = 404
	for _, runtime := range []string{proc.Containerd, proc.CRIO, ""} {
		_, err = e.Inspect(t.Context(), proc.Cgroup{ID: id, Runtime: runtime})
		require.ErrorIs(t, err, container.ErrUnknown, "an engine without an API may have it")
	}
}

// TestHangingEngine: the deadline holds.
func TestHangingEngine(t *testing.T) {
	root := t.TempDir()
	released := make(chan struct{})
	defer close(released)
	serve(t, root, func(http.ResponseWriter, *http.Request) { <-released })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, proctest.Try(container.Engines{Root: root}.Inspect(ctx, docker())).Err, container.ErrUnknown)
	require.Error(t, ctx.Err(), "it was waited for")
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, container.Engines{Root: root}.Stop(ctx, docker(), time.Second), "docker.sock: no answer in time")
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
	listener := proctest.Try(net.Listen("unix", filepath.Join(root, "run/docker.sock"))).OK(f)
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
