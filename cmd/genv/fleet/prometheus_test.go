package fleet_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// prometheus is a real Prometheus on loopback.
type prometheus struct {
	t      *testing.T
	url    string
	client http.Client
}

func startPrometheus(t *testing.T, configFile string) *prometheus {
	proctest.NeedPrograms(t, "prometheus")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	cmd := exec.Command("prometheus", "--config.file="+configFile, "--storage.tsdb.path="+t.TempDir(), "--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // how it ends doesn't matter
		_ = log.Close()
	})
	p := &prometheus{t: t, url: "http://" + address, client: http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}}
	require.Eventually(t, func() bool {
		answer, err := p.client.Get(p.url + "/-/ready")
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}, 2*time.Minute, 100*time.Millisecond, "Prometheus is not ready; its log: %s", log.Name())
	return p
}

// query is the number of series that an expression returns now.
func (p *prometheus) query(expression string) int {
	answer, err := p.client.Get(p.url + "/api/v1/query?query=" + url.QueryEscape(expression))
	require.NoError(p.t, err)
	defer answer.Body.Close()
	var document struct {
		Status, Error string
		Data          struct{ Result []json.RawMessage }
	}
	require.NoError(p.t, json.NewDecoder(answer.Body).Decode(&document))
	require.Equal(p.t, "success", document.Status, "%s: %s", expression, document.Error)
	return len(document.Data.Result)
}

func (p *prometheus) waitFor(expression string, series int) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return p.query(expression) == series }, 2*time.Minute, 200*time.Millisecond, "%s has %d series", expression, series)
}

// dashboard is what the test needs of a Grafana dashboard.
type dashboard struct {
	Panels []struct {
		Title   string
		Targets []struct{ Expr string }
	}
}

func readDashboard(t *testing.T, path string) (d dashboard) {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &d))
	require.NotEmpty(t, d.Panels)
	return d
}

// TestPrometheusScrapesAFleet: a real Prometheus with the configuration that was written scrapes the metrics, each
// expression of the dashboard returns data, and what is gone from the fleet goes from Prometheus.
func TestPrometheusScrapesAFleet(t *testing.T) {
	f, ours := monitoredFleet(t)
	m := startMonitor(t, genvtest.Getenv(t), "remote", "monitor", "-F", f.SSHConfig(), "-H", "ours,old,bare,nosudo,down")
	p := startPrometheus(t, filepath.Join(m.configDir, "prometheus/prometheus.yml"))
	p.waitFor(`genv_is_installed{job="genv"}`, 4)
	p.waitFor(`up{job="genv"} == 1`, 1)
	for _, panel := range readDashboard(t, filepath.Join(m.configDir, "grafana/dashboards/overview.json")).Panels {
		for _, target := range panel.Targets {
			require.NotZero(t, p.query(target.Expr), "%s: %s", panel.Title, target.Expr)
		}
	}
	require.Equal(t, 1, p.query(`genv_process_devices_total{hostname="ours",pid="70",eid="1667"} == 1`))
	require.Equal(t, 1, p.query(`count(count by (username) (genv_user_environments_total)) == 1`), "alice is on three hosts")

	odd := "a \"b\" \\ c"
	ours.Change(func(s *snapshot.Snapshot) {
		s.Environments[0].EID, s.Processes[0].EID, s.Devices[0].Attachments[0].EID = snapshot.EnvID(odd), snapshot.EnvID(odd), snapshot.EnvID(odd)
	})
	p.waitFor(fmt.Sprintf(`genv_environment_processes_total{hostname="ours",eid=%q}`, odd), 1)
	p.waitFor(`genv_environment_processes_total{hostname="ours",eid="1667"}`, 0)
}

// TestPrometheusScrapesAHost: likewise for `genv monitor`, whose series have no hostname.
func TestPrometheusScrapesAHost(t *testing.T) {
	machine, env := machineInUse(t)
	m := startMonitor(t, environ(machine.Environ()...), "monitor")
	p := startPrometheus(t, filepath.Join(m.configDir, "prometheus/prometheus.yml"))
	p.waitFor(fmt.Sprintf("genv_environment_processes_total{eid=%q} == 1", env.EID), 1)
	for _, panel := range readDashboard(t, filepath.Join(m.configDir, "grafana/dashboards/overview.json")).Panels {
		for _, target := range panel.Targets {
			require.NotZero(t, p.query(target.Expr), "%s: %s", panel.Title, target.Expr)
		}
	}
}

func TestPromtoolAcceptsTheConfiguration(t *testing.T) {
	proctest.NeedPrograms(t, "promtool")
	f, _ := monitoredFleet(t)
	m := startMonitor(t, genvtest.Getenv(t), "remote", "monitor", "-F", f.SSHConfig(), "-H", "ours")
	out, err := exec.Command("promtool", "check", "config", filepath.Join(m.configDir, "prometheus/prometheus.yml")).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
