// Package monitoring runs `genv monitor` and `genv remote monitor`: flags, the collecting loop, the HTTP server for
// Prometheus, and configuration files for Prometheus and Grafana. It doesn't know how hosts are reached. Package
// remote/metrics names the metrics.
package monitoring

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote/live/socket"
	"github.com/seed-3119e985/genv/remote/metrics"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// Run collects and serves metrics until ctx ends or serving fails. collect asks all hosts once, within patience, and
// returns those that answered. Its error ends the run.
func Run(
	ctx context.Context, p *command.Program, config ExportConfig,
	collect func(context.Context) ([]metrics.Scraped, error),
	patience time.Duration,
) error {
	listener, err := socket.ListenTCP(ctx, config.Address, config.Port)
	if err != nil {
		return err
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	if err := publish(config, port, p.Getenv); err != nil {
		return err
	}
	fmt.Fprintf(p.Err, "Metrics: http://%s/metrics, collected every %s. Configuration files: %s\n", config.target(port),
		config.Interval, config.ConfigDir)
	e := &exporter{now: time.Now, maxAge: 3*config.Interval + patience}
	failed, stop := socket.Serve(listener, e)
	defer stop()
	warned := make(map[snapshot.Hostname]string)
	ticker := time.NewTicker(config.Interval)
	defer ticker.Stop()
	for {
		begun := e.now()
		hosts, err := collect(ctx)
		if err != nil {
			return err
		}
		if ctx.Err() == nil { // else the collection is incomplete
			e.publish(metrics.Genv143(hosts), begun)
			warn(p, hosts, warned)
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return fmt.Errorf("serve the metrics: %w", err)
		case <-ticker.C:
		}
	}
}

// warn prints what a host's metrics lack, and again when that changes.
func warn(p *command.Program, hosts []metrics.Scraped, warned map[snapshot.Hostname]string) {
	for i := range hosts {
		name, missing := hosts[i].Name, hosts[i].Missing()
		switch {
		case warned[name] == missing:
		case missing == "":
		case name != "":
			p.Warn(string(name) + ": " + missing)
		default:
			p.Warn(missing)
		}
		warned[name] = missing
	}
}

// exporter serves the last collection. It is safe for concurrent use.
type exporter struct {
	now    func() time.Time
	maxAge time.Duration // older metrics are not served

	mu   sync.Mutex
	text []byte
	at   time.Time // of the collection
}

func (e *exporter) publish(text []byte, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.text, e.at = text, at
}

// ServeHTTP answers GET and HEAD of /metrics, and of / as genv 1.4.3 does.
func (e *exporter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path != "/metrics" && r.URL.Path != "/":
		http.NotFound(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD are allowed", http.StatusMethodNotAllowed)
	default:
		e.mu.Lock()
		text := e.text
		if e.now().Sub(e.at) > e.maxAge {
			text = nil
		}
		e.mu.Unlock()
		w.Header().Set("Content-Type", metrics.ContentType)
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if r.Method == http.MethodGet {
			_, _ = w.Write(text) // the client may have gone
		}
	}
}

// ExportConfig are the flags of `genv monitor`.
type ExportConfig struct {
	Address   string // IP address of the server
	Port      int    // 0 for any free one
	Interval  time.Duration
	ConfigDir string // absolute
}

// Flags returns the flags of genv 1.4.3, and the address.
func (config *ExportConfig) Flags(getenv func(string) string) []cli.Flag {
	*config = ExportConfig{
		Address: "127.0.0.1", Port: 8000, Interval: 10 * time.Second, ConfigDir: filepath.Join(disk.Dir(getenv),
			"metrics"),
	}
	return []cli.Flag{
		command.String(&config.ConfigDir, "config-dir", "`FOLDER` for the configuration files of Prometheus and "+
			"Grafana").Config(command.Site),
		command.Int(&config.Port, "port,p", "serve the metrics on this `PORT`").Config(command.Site),
		command.String(&config.Address, "address", "serve them on this IP `ADDRESS`; 0.0.0.0 for all of this machine, "+
			"to everybody who reaches it").Config(command.Site),
		command.Duration(&config.Interval, "interval,i", "`TIME` between two collections, in seconds or as 500ms").
			Config(command.Site),
	}
}

// Check checks the flags.
func (config *ExportConfig) Check() (err error) {
	if config.Port < 0 || config.Port > 65535 {
		return command.WrongFlag("port", " %d: write a number from 1 to 65535, or 0 for any free port", config.Port)
	}
	if net.ParseIP(config.Address) == nil {
		return command.WrongFlag("address",
			" %q: write an IP address of this machine, such as 127.0.0.1, or 0.0.0.0 for all", config.Address)
	}
	if config.ConfigDir, err = filepath.Abs(config.ConfigDir); err != nil {
		return err
	}
	if strings.ContainsFunc(config.ConfigDir, func(r rune) bool {
		return r < ' ' || strings.ContainsRune("\x7f\"'`;#$%\\", r)
	}) {
		return command.WrongFlag("config-dir", " %q: grafana.ini can't express this path; "+
			"write one without quotes and without ; # $ %% \\", config.ConfigDir)
	}
	return nil
}

// target is the server's address for a Prometheus on this machine.
func (config *ExportConfig) target(port int) string {
	host := config.Address
	if ip := net.ParseIP(host); ip.IsUnspecified() || ip.Equal(net.IPv4(127, 0, 0, 1)) {
		host = "localhost"
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

//go:embed files
var templates embed.FS

// published are the configuration files, at 1.4.3's paths.
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
	scrape := fmt.Sprintf("%dms", max(config.Interval.Milliseconds(), 1)) // scrape each collection once
	return []byte(strings.NewReplacer("DIR", config.ConfigDir, "TARGET", config.target(port), "INTERVAL",
		scrape).Replace(string(text))), nil
}

// publish writes the configuration files. Prometheus and Grafana trust them, and all users may write to the folder
// above. So it follows no link, and refuses a folder that another user made or may write to.
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

func openFolder(path, stateDir string) (*folder.Folder, error) {
	above, open := filepath.Dir(path), folder.Open // the state folder is for all users
	if state, err := filepath.Abs(stateDir); err != nil || above != state {
		if err := os.MkdirAll(above, 0o755); err != nil { // for this user
			return nil, err
		}
		open = folder.OpenExisting
	}
	parent, err := open(above)
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	return private(parent, filepath.Base(path))
}

// private opens or creates a folder that only its owner, this user or root, can write to.
func private(parent *folder.Folder, name string) (*folder.Folder, error) {
	dir, err := parent.Sub(name)
	if errors.Is(err, fs.ErrNotExist) {
		dir, err = parent.PrivateSub(name, 0o755)
	}
	if err == nil {
		err = dir.CheckPrivate()
	}
	return dir.OrClose(err)
}

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
