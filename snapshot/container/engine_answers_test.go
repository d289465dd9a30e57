package container_test

import (
	"context"
	"errors"
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
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
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

// withRoot is a folder with the record of the container "kept".
func withRoot(t *testing.T) (root, record string) {
	root = t.TempDir()
	require.NoError(t, os.Chmod(root, 0o755))
	record = filepath.Join(root, "var/lib/docker/containers", id, "config.v2.json")
	write(t, record, `{"ID":"`+id+`","Name":"/kept"}`)
	return root, record
}

// TestBadAnswers: an engine that answers slowly, too much or something else costs no more than
// the time that it has, and the record says what the container is.
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
			root, _ := withRoot(t)
			serve(t, root, row.answer)
			wait := time.Minute // which fails the test if it is waited for
			if row.waits {
				wait = 50 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			got, err := container.Engines{Root: root}.Inspect(ctx, docker())
			require.NoError(t, err)
			require.Equal(t, "kept", got.Name)
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

// TestAnEngineThatRestarts: while it is away its record counts, and afterwards it is asked again.
func TestAnEngineThatRestarts(t *testing.T) {
	root, _ := withRoot(t)
	e, answers := container.Engines{Root: root}, 0
	name := func() string {
		got, err := e.Inspect(t.Context(), docker())
		require.NoError(t, err)
		return got.Name
	}
	answer := func(w http.ResponseWriter, _ *http.Request) {
		answers++
		_, _ = w.Write([]byte(inspected("/web", running)))
	}
	stop := start(t, root, answer)
	require.Equal(t, "web", name())
	stop()
	require.Equal(t, "kept", name(), "without a socket")
	write(t, filepath.Join(root, "run/docker.sock"), "")
	require.Equal(t, "kept", name(), "with a socket that is left over")
	require.NoError(t, os.Remove(filepath.Join(root, "run/docker.sock")))
	serve(t, root, answer)
	require.Equal(t, "web", name())
	require.Equal(t, 2, answers)
}

// TestUntrustedRecords: a record that a user can have written is not read, and that it isn't is
// something else than that there is none.
func TestUntrustedRecords(t *testing.T) {
	chmod := func(name string, mode os.FileMode) func(*testing.T, string) {
		return func(t *testing.T, root string) { require.NoError(t, os.Chmod(filepath.Join(root, name), mode)) }
	}
	moved := func(t *testing.T, root string) {
		require.NoError(t, os.Mkdir(filepath.Join(root, "data"), 0o755))
		require.NoError(t, os.Rename(filepath.Join(root, "var/lib/docker"), filepath.Join(root, "data/docker")))
	}
	atData := func(t *testing.T, root string) {
		moved(t, root)
		write(t, filepath.Join(root, "etc/docker/daemon.json"), `{"data-root":"/data/docker"}`)
	}
	linked := func(t *testing.T, root string) {
		moved(t, root)
		require.NoError(t, os.Symlink("/data/docker", filepath.Join(root, "var/lib/docker")))
	}
	record := "var/lib/docker/containers/" + id + "/config.v2.json"
	for name, row := range map[string]struct {
		change  func(*testing.T, string)
		want    string
		trusted bool
	}{
		"root's alone":                     {func(*testing.T, string) {}, "kept", true},
		"none":                             {func(t *testing.T, root string) { require.NoError(t, os.Remove(filepath.Join(root, record))) }, "", true},
		"a data folder elsewhere":          {atData, "kept", true},
		"a link to it":                     {linked, "kept", true},
		"others can write it":              {chmod(record, 0o666), "", false},
		"others can write a folder":        {chmod("var/lib", 0o777), "", false},
		"others can write daemon.json":     {func(t *testing.T, root string) { atData(t, root); chmod("etc/docker/daemon.json", 0o666)(t, root) }, "", false},
		"others can write the data folder": {func(t *testing.T, root string) { atData(t, root); chmod("data", 0o777)(t, root) }, "", false},
		"the same behind a link":           {func(t *testing.T, root string) { linked(t, root); chmod("data", 0o777)(t, root) }, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			root, _ := withRoot(t)
			row.change(t, root)
			got, err := container.Engines{Root: root}.Inspect(t.Context(), docker())
			require.Equal(t, row.want, got.Name)
			require.Equal(t, !row.trusted, errors.Is(err, folder.ErrUntrusted), "%v", err)
			if row.want == "" {
				require.ErrorIs(t, err, container.ErrUnknown)
			}
		})
	}
}

// TestUntrustedPlaces are the records of the other engines.
func TestUntrustedPlaces(t *testing.T) {
	for place, path := range map[string]string{
		"containerd": "run/containerd/io.containerd.runtime.v2.task/k8s.io/" + id + "/config.json",
		"podman":     "var/lib/containers/storage/overlay-containers/" + id + "/userdata/config.json",
	} {
		t.Run(place, func(t *testing.T) {
			root, _ := withRoot(t)
			write(t, filepath.Join(root, path), `{"annotations":{"nerdctl/name":"job"}}`)
			where := docker()
			where.Runtime = place
			got, err := container.Engines{Root: root}.Inspect(t.Context(), where)
			require.NoError(t, err)
			require.Equal(t, "job", got.Name)
			for folderPath := filepath.Dir(path); folderPath != "."; folderPath = filepath.Dir(folderPath) {
				require.NoError(t, os.Chmod(filepath.Join(root, folderPath), 0o775))
				_, err = container.Engines{Root: root}.Inspect(t.Context(), where)
				require.ErrorIs(t, err, folder.ErrUntrusted, folderPath)
				require.NoError(t, os.Chmod(filepath.Join(root, folderPath), 0o755))
			}
		})
	}
}

// TestWhatABundleLeavesOut: nerdctl and ctr note no image in it, which is not the same as none.
func TestWhatABundleLeavesOut(t *testing.T) {
	root, _ := withRoot(t)
	place := proc.Place{ID: id, Runtime: proc.Containerd}
	for _, row := range []struct {
		annotations, name string
		unknown           bool
	}{
		{`{"nerdctl/name":"web"}`, "web", true},
		{`{}`, "", true},
		{`{"io.kubernetes.cri.container-name":"web","io.kubernetes.cri.image-name":"lab/train:1"}`, "web", false},
	} {
		write(t, filepath.Join(root, "run/containerd/io.containerd.runtime.v2.task/default", id, "config.json"), `{"annotations":`+row.annotations+`}`)
		got, err := container.Engines{Root: root}.Inspect(t.Context(), place)
		require.NoError(t, err)
		require.Equal(t, row.name, got.Name)
		require.Equal(t, row.unknown, got.Unknown, row.annotations)
	}
}
