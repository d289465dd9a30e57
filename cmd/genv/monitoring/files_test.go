package monitoring

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

func none(string) string { return "" }

func in(dir string) ExportConfig {
	return ExportConfig{Address: "0.0.0.0", Port: 8000, Interval: 10 * time.Second, ConfigDir: dir}
}

func read(t *testing.T, path string) string {
	text := proctest.ReadFile(t, path)
	return string(text)
}

func TestFilesOf143(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b", "metrics")
	for range 2 { // the second time they are there
		require.NoError(t, publish(in(dir), 8123, none))
	}
	var found []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)
		info := proctest.Try(entry.Info()).OK(t)
		if entry.IsDir() {
			require.Equal(t, fs.FileMode(0o755), info.Mode().Perm(), path)
			return nil
		}
		require.Equal(t, fs.FileMode(0o644), info.Mode().Perm(), path)
		found = append(found, strings.TrimPrefix(path, dir+"/"))
		return nil
	}))
	require.ElementsMatch(t, []string{
		"prometheus/prometheus.yml", "grafana/grafana.ini", "grafana/provisioning/datasources/default.yml",
		"grafana/provisioning/dashboards/default.yml", "grafana/dashboards/overview.json",
	}, found)

	require.Contains(t, read(t, dir+"/prometheus/prometheus.yml"), `targets: ["localhost:8123"]`)
	require.Contains(t, read(t, dir+"/prometheus/prometheus.yml"), "scrape_interval: 10000ms")
	require.Contains(t, read(t, dir+"/grafana/grafana.ini"), "\nprovisioning = "+dir+"/grafana/provisioning\n")
	require.Contains(t, read(t, dir+"/grafana/grafana.ini"), "\ndefault_home_dashboard_path = "+dir+"/grafana/dashboards/overview.json\n")
	for _, name := range []string{"prometheus/prometheus.yml", "grafana/provisioning/datasources/default.yml", "grafana/provisioning/dashboards/default.yml"} {
		var document map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(read(t, filepath.Join(dir, name))), &document), name)
	}
	require.Contains(t, read(t, dir+"/grafana/provisioning/dashboards/default.yml"), `path: "`+dir+`/grafana/dashboards"`)
}

func TestTargets(t *testing.T) {
	for address, want := range map[string]string{
		"0.0.0.0": "localhost:8000", "127.0.0.1": "localhost:8000", "::": "localhost:8000", "127.0.0.9": "127.0.0.9:8000",
		"192.0.2.1": "192.0.2.1:8000", "2001:db8::1": "[2001:db8::1]:8000", "::1": "[::1]:8000",
	} {
		config := ExportConfig{Address: address}
		require.Equal(t, want, config.target(8000), address)
	}
}

// TestFoldersThatAreNotTrusted: nothing is written through a link, or into a folder that other users may write to.
func TestFoldersThatAreNotTrusted(t *testing.T) {
	for name, prepare := range map[string]func(dir, elsewhere string) error{
		"a link":               func(dir, elsewhere string) error { return os.Symlink(elsewhere, dir) },
		"a link to nothing":    func(dir, elsewhere string) error { return os.Symlink(elsewhere+"/none", dir) },
		"a file":               func(dir, _ string) error { return os.WriteFile(dir, nil, 0o644) },
		"for all users":        func(dir, _ string) error { return mkdir(dir, 0o777) },
		"for all users, below": func(dir, _ string) error { return mkdir(dir+"/grafana/provisioning", 0o777) },
		"a link below": func(dir, elsewhere string) error {
			return errors.Join(mkdir(dir, 0o755), os.Symlink(elsewhere, dir+"/prometheus"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			elsewhere := t.TempDir()
			dir := filepath.Join(t.TempDir(), "metrics")
			require.NoError(t, prepare(dir, elsewhere))
			err := publish(in(dir), 8000, none)
			require.ErrorIs(t, err, folder.ErrUnsafe)
			require.ErrorContains(t, err, "with --config-dir")
			require.Empty(t, proctest.Try(os.ReadDir(elsewhere)).OK(t))
		})
	}
}

func mkdir(path string, mode os.FileMode) error {
	return errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, mode))
}

func TestFilesReplaceLinks(t *testing.T) {
	dir, secret := filepath.Join(t.TempDir(), "metrics"), filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o600))
	require.NoError(t, mkdir(dir+"/prometheus", 0o755))
	require.NoError(t, os.Symlink(secret, dir+"/prometheus/prometheus.yml"))
	require.NoError(t, publish(in(dir), 8000, none))
	require.Equal(t, "secret", read(t, secret))
	require.Contains(t, read(t, dir+"/prometheus/prometheus.yml"), "job_name")
}

func TestAFolderOfAnotherUser(t *testing.T) {
	proctest.NeedRoot(t)
	dir := filepath.Join(t.TempDir(), "metrics")
	require.NoError(t, mkdir(dir, 0o755))
	require.NoError(t, os.Chown(dir, 65534, 65534))
	require.ErrorIs(t, publish(in(dir), 8000, none), folder.ErrUnsafe)
}

// TestTheDefaultFolder is in the state folder, which is for all users.
func TestTheDefaultFolder(t *testing.T) {
	state := filepath.Join(t.TempDir(), "genv")
	getenv := func(name string) string { return map[string]string{"GENV_TMPDIR": state}[name] }
	defaultDir := func(getenv func(string) string) string {
		var config ExportConfig
		config.Flags(getenv)
		return config.ConfigDir
	}
	require.Equal(t, state+"/metrics", defaultDir(getenv))
	require.Equal(t, "/var/tmp/genv/metrics", defaultDir(none))
	require.NoError(t, publish(in(defaultDir(getenv)), 8000, getenv))
	require.Equal(t, fs.FileMode(0o777), proctest.Try(os.Stat(state)).OK(t).Mode().Perm())
}

func TestDashboard(t *testing.T) {
	type source struct{ Type, UID string }
	var d struct {
		UID    string
		Panels []struct {
			ID         int
			Title      string
			Type       string
			Datasource source
			GridPos    struct{ X, Y, W, H int }
			Targets    []struct {
				RefID      string
				Expr       string
				Datasource source
			}
		}
	}
	config := in("/x")
	require.NoError(t, json.Unmarshal(proctest.Try(config.file("overview.json", 8000)).OK(t), &d))
	require.Contains(t, string(proctest.Try(config.file("datasource.yml", 8000)).OK(t)), "uid: genv-prometheus\n")
	require.NotEmpty(t, d.UID)

	var titles []string
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		titles = append(titles, p.Title)
		require.NotZero(t, p.ID)
		require.False(t, ids[p.ID], "id %d is used twice", p.ID)
		ids[p.ID] = true
		require.Equal(t, source{"prometheus", "genv-prometheus"}, p.Datasource, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		refs := map[string]bool{}
		for _, target := range p.Targets {
			require.Contains(t, target.Expr, "genv_", p.Title)
			require.Equal(t, p.Datasource, target.Datasource, p.Title)
			require.False(t, refs[target.RefID], "%s: refId %s is used twice", p.Title, target.RefID)
			refs[target.RefID] = true
		}
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		require.Positive(t, p.GridPos.W*p.GridPos.H, p.Title)
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				require.Empty(t, cells[[2]int{x, y}], "%s is on top of it", p.Title)
				cells[[2]int{x, y}] = p.Title
			}
		}
	}
	require.Equal(t, []string{ // the first 11 are those of 1.4.3
		"Genv Cluster Installation", "Genv Environments", "Genv Users", "Genv Devices", "Genv Processes",
		"Cluster Compute Utilization", "Device Compute Utilization", "Cluster Memory Utilization", "Device Memory Utilization",
		"Cluster Temperature", "Device Temperature",
		"User Attached Devices", "User Environments", "User Processes",
	}, titles)
}

func TestWhatIsServed(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	e := &exporter{now: func() time.Time { return now }, maxAge: 40 * time.Second}
	ask := func(method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(method, path, http.NoBody))
		return w
	}
	require.Empty(t, ask("GET", "/metrics").Body.String(), "nothing was collected yet")
	require.Equal(t, http.StatusOK, ask("GET", "/metrics").Code)

	e.publish([]byte("genv_is_installed 1\n"), now)
	for _, path := range []string{"/metrics", "/", "/metrics?x=1"} {
		got := ask("GET", path)
		require.Equal(t, "genv_is_installed 1\n", got.Body.String(), path)
		require.Equal(t, "text/plain; version=0.0.4; charset=utf-8", got.Header().Get("Content-Type"))
		got = ask("HEAD", path)
		require.Empty(t, got.Body.String())
		require.Equal(t, "20", got.Header().Get("Content-Length"))
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT"} {
		got := ask(method, "/metrics")
		require.Equal(t, http.StatusMethodNotAllowed, got.Code, method)
		require.Equal(t, "GET, HEAD", got.Header().Get("Allow"))
	}
	for _, path := range []string{"/metrics/", "/debug/pprof/", "/../etc/passwd", "/x"} {
		require.Equal(t, http.StatusNotFound, ask("GET", path).Code, path)
	}

	now = now.Add(40 * time.Second)
	require.NotEmpty(t, ask("GET", "/metrics").Body.String())
	now = now.Add(time.Second)
	require.Empty(t, ask("GET", "/metrics").Body.String(), "they are too old")
	e.publish([]byte("genv_is_installed 0\n"), now)
	require.NotEmpty(t, ask("GET", "/metrics").Body.String())
}
