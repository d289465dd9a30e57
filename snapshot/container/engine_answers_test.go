package container_test

import (
	"context"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
)

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
	got, err := container.Engines{Root: root}.Inspect(t.Context(), docker())
	require.NoError(t, err)
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
