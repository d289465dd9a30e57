package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet/servers"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

var metricsAt = regexp.MustCompile(`http://(127\.0\.0\.1:\d+)/metrics`)

// metricsOf is the address at which a controller says it serves its metrics.
func metricsOf(t *testing.T, run *genvtest.Running) (address string) {
	t.Helper()
	genvtest.Eventually(t, "the metrics are served", func() bool {
		m := metricsAt.FindStringSubmatch(run.Err.String())
		if m != nil {
			address = m[1]
		}
		return m != nil
	})
	return address
}

// prometheusFor starts a Prometheus with our alerts and a scrape configuration.
func prometheusFor(t *testing.T, scrape string) *prometheus {
	config := filepath.Join(t.TempDir(), "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: 500ms, evaluation_interval: 500ms}\nrule_files: [%s/genv-alerts.yml]\nscrape_configs:\n  - job_name: genv\n    %s\n",
		absolute(t, monitoringDocs), scrape)
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	return startPrometheus(t, config)
}

// returnsData checks each expression of a dashboard.
func returnsData(t *testing.T, p *prometheus, path string) {
	t.Helper()
	var d dashboard
	require.NoError(t, json.Unmarshal(proctest.ReadFile(t, path), &d))
	require.NotEmpty(t, d.Panels)
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			expression := strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h").Replace(target.Expr)
			genvtest.Eventually(t, panel.Title+": "+expression, func() bool { return p.query(expression) > 0 })
		}
	}
}

// controllerInUse is a controller of a host of each kind, which leads. bob's process is in no environment.
func controllerInUse(t *testing.T) (address string) {
	servers.RequireEtcd(t)
	etcd := servers.StartEtcd(t, 1)
	f, ours := monitoredFleet(t)
	bob, zero := snapshot.UID(1002), 0
	ours.Change(func(s *snapshot.Snapshot) {
		for i := range s.Devices {
			s.Devices[i].Name, s.Devices[i].UUID = "NVIDIA \"H100\"\\", snapshot.GPUUUID(fmt.Sprint("GPU-", i))
		}
		s.Guard = &snapshot.Guard{Mode: snapshot.GuardOff}
		s.Devices[1].Utilization, s.Devices[1].UsedMemory = &zero, snapshot.MiB(3)
		s.Processes = append(s.Processes, snapshot.Process{PID: 99, Start: 5, UID: &bob, Usage: []snapshot.DeviceUsage{{Index: 1, Memory: snapshot.MiB(1000)}}})
	})
	return metricsOf(t, genvtest.Begin(t, "remote", "enforce", "-F", f.SSHConfig(), "-H", "ours,old,bare,nosudo,down", "--interval", "500ms",
		"--metrics", "127.0.0.1:0", "--socket", "off", "--non-env-processes", "--state-dir", t.TempDir(), "--leader", "etcd://"+etcd.Addresses()+"/lab"))
}

// TestPrometheusScrapesAController: each expression of the dashboard returns data, and alerts fire.
func TestPrometheusScrapesAController(t *testing.T) {
	p := prometheusFor(t, fmt.Sprintf("static_configs: [{targets: [%q]}]", controllerInUse(t)))
	p.waitFor(`genv_host_up == 1`, 3)
	p.waitFor(`sum(genv_terminations_total{rule="non-env-processes"}) == 1`, 1)
	p.waitFor(`genv_gpus{host="ours",model="NVIDIA \"H100\"\\",state="free"} == 1`, 1)
	p.waitFor(`genv_gpus{host="down"}`, 0)
	p.waitFor(`genv_user_gpu_seconds_total{user="alice"} > 0`, 1)
	p.waitFor(`ALERTS{alertname="GenvHostDown",alertstate="firing",host="down",class="unreachable"}`, 1)
	p.waitFor(`ALERTS{alertname="GenvHostDown",alertstate="firing",host="nosudo",class="sudo"}`, 1)
	returnsData(t, p, filepath.Join(monitoringDocs, "genv-fleet.json"))
	require.Zero(t, p.query(`ALERTS{alertname!="GenvHostDown",alertstate="firing"}`))
}

// TestPrometheusScrapesHostByHost is likewise for the targets that the controller lists.
func TestPrometheusScrapesHostByHost(t *testing.T) {
	p := prometheusFor(t, fmt.Sprintf("http_sd_configs: [{refresh_interval: 1s, url: \"http://%s/sd\"}]", controllerInUse(t)))
	p.waitFor(`up == 1`, 6)
	p.waitFor(`genv_host_up`, 5)
	p.waitFor(`genv_host_up{host="ours",instance="ours"} == 1`, 1)
	p.waitFor(`genv_build_info`, 1)
	returnsData(t, p, filepath.Join(monitoringDocs, "genv-fleet.json"))
}

// TestReady: also when all hosts failed in the first cycle. `genv remote watch` has no series of enforcement.
func TestReady(t *testing.T) {
	f, _ := monitoredFleet(t)
	socket := filepath.Join(t.TempDir(), "s")
	run := genvtest.Begin(t, "remote", "watch", "-F", f.SSHConfig(), "-H", "down", "--interval", "200ms", "--socket", socket, "--metrics", "127.0.0.1:0")
	address := metricsOf(t, run)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	onSocket := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	get := func(client *http.Client, path string) (int, string) {
		answer, err := client.Get("http://" + address + path)
		require.NoError(t, err)
		defer answer.Body.Close()
		body := proctest.Try(io.ReadAll(answer.Body)).OK(t)
		return answer.StatusCode, string(body)
	}
	genvtest.Eventually(t, "ready", func() bool { code, _ := get(&client, "/-/ready"); return code == http.StatusOK })
	for _, client := range []*http.Client{&client, &onSocket} {
		code, _ := get(client, "/-/healthy")
		require.Equal(t, http.StatusOK, code)
		_, text := get(client, "/metrics")
		require.Contains(t, text, "genv_host_up{host=\"down\"} 0\n")
		require.Contains(t, text, "genv_cycle_interval_seconds 0.2\n")
		require.NotContains(t, text, "genv_findings")
		require.NotContains(t, text, "genv_terminations_total")
	}
	var before, after time.Time
	genvtest.Eventually(t, "cycles advance", func() bool {
		_, text := get(&client, "/metrics")
		after = timestampOf(t, text)
		if before.IsZero() {
			before = after
		}
		return after.After(before)
	})
}

func timestampOf(t *testing.T, text string) time.Time {
	var seconds float64
	m := regexp.MustCompile(`\ngenv_last_cycle_timestamp_seconds (\S+)\n`).FindStringSubmatch(text)
	require.NotNil(t, m)
	proctest.Try(fmt.Sscan(m[1], &seconds)).OK(t)
	return time.UnixMilli(int64(seconds * 1000))
}

// prometheus is a real Prometheus on loopback.
type prometheus struct {
	t      *testing.T
	url    string
	client http.Client
}

func startPrometheus(t *testing.T, configFile string) *prometheus {
	proctest.NeedPrograms(t, "prometheus")
	listener := proctest.Try(net.Listen("tcp", "127.94.0.1:0")).OK(t) // no connection takes its port: those have 127.0.0.1
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	log := proctest.Try(os.Create(filepath.Join(t.TempDir(), "log"))).OK(t)
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

// TestPrometheusScrapesAFleet: a real Prometheus with the configuration that was written scrapes the metrics, each
// expression of the dashboard returns data, and what is gone from the fleet goes from Prometheus.
func TestPrometheusScrapesAFleet(t *testing.T) {
	f, ours := monitoredFleet(t)
	m := startMonitor(t, genvtest.Getenv(t), "remote", "monitor", "-F", f.SSHConfig(), "-H", "ours,old,bare,nosudo,down")
	p := startPrometheus(t, filepath.Join(m.configDir, "prometheus/prometheus.yml"))
	p.waitFor(`genv_is_installed{job="genv"}`, 4)
	p.waitFor(`up{job="genv"} == 1`, 1)
	returnsData(t, p, filepath.Join(m.configDir, "grafana/dashboards/overview.json"))
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
	returnsData(t, p, filepath.Join(m.configDir, "grafana/dashboards/overview.json"))
}

func TestPromtoolAcceptsTheConfiguration(t *testing.T) {
	proctest.NeedPrograms(t, "promtool")
	f, _ := monitoredFleet(t)
	m := startMonitor(t, genvtest.Getenv(t), "remote", "monitor", "-F", f.SSHConfig(), "-H", "ours")
	proctest.Output(t, exec.Command("promtool", "check", "config", filepath.Join(m.configDir, "prometheus/prometheus.yml")))
}
