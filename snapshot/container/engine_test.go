package container_test

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// daemon is an engine with Docker's API on a real socket.
type daemon struct {
	mu    sync.Mutex
	inits map[string]int // of the containers
	names map[string]string
	pause time.Duration // before each answer
	asked int
}

// withDaemon has the Lookup ask a daemon.
func (h *host) withDaemon() *daemon {
	root := h.t.TempDir()
	require.NoError(h.t, os.Chmod(root, 0o755))
	require.NoError(h.t, os.Mkdir(filepath.Join(root, "run"), 0o755))
	listener := proctest.Try(net.Listen("unix", filepath.Join(root, "run/docker.sock"))).OK(h.t)
	d := &daemon{inits: map[string]int{}, names: map[string]string{}}
	server := &http.Server{Handler: d, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	h.t.Cleanup(func() { _ = server.Close(); <-done })
	h.Engines = container.Engines{Root: root}
	h.Wait = time.Minute
	return d
}

// run adds a container, or gives one another name.
func (d *daemon) run(id, name string, init int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names[id], d.inits[id] = name, init
}

func (d *daemon) text(id string) string {
	return fmt.Sprintf(`{"ID":%q,"Name":"/%s","Config":{"Image":"pytorch:24.10","Labels":{"team":"vision"},"Env":["PATH=/bin"]},"State":{"Running":true,"Pid":%d},%s}`,
		id, d.names[id], d.inits[id], `"HostConfig":{"Binds":["`+strings.Repeat("x", 4<<10)+`"]}`) // an answer of dockerd has about 6 KB
}

func (d *daemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	d.asked++
	text, pause := d.text(path.Base(path.Dir(r.URL.Path))), d.pause
	d.mu.Unlock()
	if pause > 0 {
		select {
		case <-time.After(pause):
		case <-r.Context().Done():
		}
	}
	_, _ = w.Write([]byte(text))
}

func (d *daemon) requests() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked
}

// TestARenamedContainer has its new name within a minute.
func TestARenamedContainer(t *testing.T) {
	h := newHost(t)
	d := h.withDaemon()
	d.run(id, "web", 10)
	m := member(10, "/docker/"+id)
	require.Equal(t, "web", h.look(m)[0].Name)
	d.run(id, "shop", 10)
	h.now = h.now.Add(59 * time.Second)
	require.Equal(t, "web", h.look(m)[0].Name)
	require.Equal(t, 1, d.requests())
	h.now = h.now.Add(time.Second)
	require.Equal(t, "shop", h.look(m)[0].Name)
}

// TestManyContainers: a look ends in time, and the next one continues where it ended. An engine
// that answers is not left alone because it has much to answer.
func TestManyContainers(t *testing.T) {
	h := newHost(t)
	d := h.withDaemon()
	d.pause = 5 * time.Millisecond
	h.Wait = 100 * time.Millisecond
	var members []container.ContainedProcess
	for i := range 300 {
		each, pid := fmt.Sprintf("%064x", i), 100+i
		h.process(pid, 100, "/docker/"+each)
		d.run(each, "job", pid)
		members = append(members, member(snapshot.PID(pid), "/docker/"+each))
	}
	unknown := len(members)
	for looks := 0; unknown > 0; looks++ {
		require.Less(t, looks, len(members), "each look finds out something")
		known := 0
		for _, info := range h.look(members...) {
			if !info.Unknown {
				require.Equal(t, "job", info.Name)
				known++
			}
		}
		require.LessOrEqual(t, len(members)-known, unknown, "what is known stays known")
		if len(members)-known == unknown { // on a busy machine the engine may be late, and is left alone
			h.now = h.now.Add(31 * time.Second)
		}
		unknown = len(members) - known
	}
}

// TestASlowEngine is waited for as long as Wait says, whatever is asked, and then left alone.
func TestASlowEngine(t *testing.T) {
	h := newHost(t)
	d := h.withDaemon()
	d.pause = time.Hour
	h.Wait = 200 * time.Millisecond
	d.run(id, "web", 10)
	require.True(t, h.look(member(10, "/docker/"+id))[0].Unknown)
	h.Wait = time.Hour
	require.True(t, h.look(member(10, "/docker/"+id))[0].Unknown)
	require.Equal(t, 1, d.requests())
}

// repeat writes a text so often, or until the client has gone, and waits between two writes.
func repeat(w http.ResponseWriter, r *http.Request, times int, text string, pause time.Duration) {
	controller := http.NewResponseController(w)
	for i := 0; i < times && r.Context().Err() == nil; i++ {
		if _, err := w.Write([]byte(text)); err != nil || controller.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
		case <-time.After(pause):
		}
	}
}

// TestBadAnswers: an engine that answers slowly, too much or something else costs no more than the time that it has.
func TestBadAnswers(t *testing.T) {
	const forever = math.MaxInt
	mega := `"` + strings.Repeat("x", 1<<20) + `",`
	for name, row := range map[string]struct {
		waits  bool // until the deadline
		answer http.HandlerFunc
	}{
		"a byte at a time":       {true, func(w http.ResponseWriter, r *http.Request) { repeat(w, r, forever, " ", time.Millisecond) }},
		"a header, then silence": {true, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(200); repeat(w, r, 2, "", time.Hour) }},
		"without an end":         {false, func(w http.ResponseWriter, r *http.Request) { repeat(w, r, forever, mega, 0) }},
		"100 MB": {false, func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte(`{"Id":"` + id + `","x":[`))
			repeat(w, r, 100, mega, 0)
			_, _ = w.Write([]byte(`0]}`))
		}},
		"100 MB that was refused": {false, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500); repeat(w, r, 100, mega, 0) }},
		"a long header": {false, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", mega)
			_, _ = w.Write([]byte(inspected("/web", running)))
		}},
		"to another place": {false, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }},
		"an answer that breaks off": {false, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100000")
			_, _ = w.Write([]byte(inspected("/web", running)))
		}},
		"compressed": {false, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write([]byte("\x1f\x8b\x08"))
		}},
		"deep": {false, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(strings.Repeat("[", 1<<20))) }},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			serve(t, root, row.answer)
			wait := time.Minute // which fails the test if it is waited for
			if row.waits {
				wait = 50 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			_, err := container.Engines{Root: root}.Inspect(ctx, docker())
			require.ErrorIs(t, err, container.ErrUnknown)
			require.Equal(t, row.waits, ctx.Err() != nil)
		})
	}
}

// TestTextsOfAnEngine: a container has the name, image and labels that its user has chosen.
func TestTextsOfAnEngine(t *testing.T) {
	root := t.TempDir()
	serve(t, root, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"Id":"` + id + `","Name":"/a\nb\u001b[31m\u202e\ud800","Config":{"Image":"i\r\n:\u0000\u009b",` +
			`"Labels":{"good":"yes","a\nb":"x","x":"\u001b[2J"}}}`))
	})
	got := proctest.Try(container.Engines{Root: root}.Inspect(t.Context(), docker())).OK(t)
	require.NoError(t, snapshot.CheckText("name", got.Name), "%q", got.Name)
	require.NoError(t, snapshot.CheckText("image", got.Image), "%q", got.Image)
	labels, cut := snapshot.BoundedLabels(got.Labels)
	require.Equal(t, map[string]string{"good": "yes"}, labels)
	require.True(t, cut)
}

// TestAnEngineThatRestarts is asked again afterwards.
func TestAnEngineThatRestarts(t *testing.T) {
	root := t.TempDir()
	inspect := func() error {
		_, err := container.Engines{Root: root}.Inspect(t.Context(), docker())
		return err
	}
	answer := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(inspected("/web", running))) }
	stop := start(t, root, answer)
	require.NoError(t, inspect())
	stop()
	require.ErrorIs(t, inspect(), container.ErrUnknown, "without a socket")
	write(t, filepath.Join(root, "run/docker.sock"), "")
	require.ErrorIs(t, inspect(), container.ErrUnknown, "with a socket that is left over")
	require.NoError(t, os.Remove(filepath.Join(root, "run/docker.sock")))
	serve(t, root, answer)
	require.NoError(t, inspect())
}
