package monitoring

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

//go:embed files
var templates embed.FS

// published are the paths of the configuration files in the folder for them, which are
// those of genv 1.4.3, and their templates.
var published = []struct{ path, template string }{
	{"prometheus/prometheus.yml", "prometheus.yml"},
	{"grafana/grafana.ini", "grafana.ini"},
	{"grafana/provisioning/datasources/default.yml", "datasource.yml"},
	{"grafana/provisioning/dashboards/default.yml", "dashboards.yml"},
	{"grafana/dashboards/overview.json", "overview.json"},
}

func (config *ExportConfig) file(template string, port int) ([]byte, error) {
	text, err := templates.ReadFile("files/" + template)
	if err != nil || strings.HasSuffix(template, ".json") {
		return text, err
	}
	return []byte(strings.NewReplacer("DIR", config.ConfigDir, "TARGET", config.target(port), "INTERVAL",
		scrapeInterval(config.Interval)).Replace(string(text))), nil
}

// scrapeInterval is how often Prometheus scrapes: each collection once. It knows no less than a millisecond.
func scrapeInterval(interval time.Duration) string {
	return fmt.Sprintf("%dms", max(interval.Milliseconds(), 1))
}

// publish writes the configuration files. Other users may write to the folder above
// theirs, /var/tmp/genv, so no link is followed, and a folder that another user made or
// may write to is refused: users who start Prometheus or Grafana trust these files.
func publish(config ExportConfig, port int, getenv func(string) string) error {
	root, err := openFolder(config.ConfigDir, disk.Dir(getenv))
	if err != nil {
		return fmt.Errorf("the folder for configuration files: %w; choose a folder of your own with --config-dir", err)
	}
	defer root.Close()
	for _, file := range published {
		text, err := config.file(file.template, port)
		if err == nil {
			err = put(root, file.path, text)
		}
		if err != nil {
			return fmt.Errorf("write the configuration file %s: %w; choose another folder with --config-dir", file.path,
				err)
		}
	}
	return nil
}

// openFolder opens the folder for the files, and creates it if it is missing.
func openFolder(path, stateDir string) (*folder.Folder, error) {
	parent, err := openParent(filepath.Dir(path), stateDir)
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	return private(parent, filepath.Base(path))
}

// openParent opens the folder in which the folder for the files is. The state folder is
// for all users; others are made for this one.
func openParent(path, stateDir string) (*folder.Folder, error) {
	if state, err := filepath.Abs(stateDir); err == nil && path == state {
		return folder.Open(path)
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	return folder.OpenExisting(path)
}

// private opens a folder to which only its owner can write, this user or root, and
// creates it if it is missing. The mode of one that exists is not changed.
func private(parent *folder.Folder, name string) (*folder.Folder, error) {
	dir, err := parent.Sub(name)
	if errors.Is(err, fs.ErrNotExist) {
		dir, err = parent.PrivateSub(name)
	}
	if err != nil {
		return nil, err
	}
	if err := dir.CheckPrivate(); err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// put writes a file in a folder below root.
func put(root *folder.Folder, path string, text []byte) error {
	name, rest, below := strings.Cut(path, "/")
	if !below {
		return root.Put(name, text, 0o644, false)
	}
	dir, err := private(root, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	return put(dir, rest, text)
}
