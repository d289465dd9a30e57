package fleet_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// monitoringDocs is where the files for Prometheus and Grafana are.
const monitoringDocs = "../../../docs/monitoring"

func promtool(t *testing.T, args ...string) {
	proctest.NeedPrograms(t, "promtool")
	cmd := exec.Command("promtool", args...)
	cmd.Dir = monitoringDocs
	out := proctest.Output(t, cmd)
	require.NotContains(t, out, "FAILED")
}

// TestAlerts: each alert has a row in which it fires, and one in which it must not.
func TestAlerts(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "rules", "genv-alerts.yml")
	promtool(t, "test", "rules", "genv-alerts.test.yml")
	rules := proctest.ReadFile(t, filepath.Join(monitoringDocs, "genv-alerts.yml"))
	tests := genvtest.Read(t, filepath.Join(monitoringDocs, "genv-alerts.test.yml"))
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllSubmatch(rules, -1)
	require.NotEmpty(t, alerts)
	for _, alert := range alerts {
		require.Regexp(t, `alertname: `+string(alert[1])+`\n +exp_alerts:`, tests, "fires")
		require.Contains(t, tests, "alertname: "+string(alert[1])+"}", "must not fire")
	}
}

// TestScrapeConfigurations: both that the example has.
func TestScrapeConfigurations(t *testing.T) {
	promtool(t, "check", "config", "prometheus.yml")
	head, rest, _ := strings.Cut(genvtest.Read(t, filepath.Join(monitoringDocs, "prometheus.yml")), "scrape_configs:\n")
	_, commented, found := strings.Cut(rest, "  # - job_name")
	require.True(t, found)
	other := filepath.Join(t.TempDir(), "prometheus.yml")
	head = strings.ReplaceAll(head, "rule_files: [", "rule_files: ["+absolute(t, monitoringDocs)+"/")
	second := head + "scrape_configs:\n  - job_name" + strings.ReplaceAll(commented, "\n  # ", "\n  ")
	require.NoError(t, os.WriteFile(other, []byte(second), 0o600))
	require.Contains(t, second, "\n    http_sd_configs:\n")
	promtool(t, "check", "config", other)
}

func absolute(t *testing.T, path string) string {
	return proctest.Try(filepath.Abs(path)).OK(t)
}

// TestFleetDashboard: what Grafana needs of the file, and can't be seen without one.
func TestFleetDashboard(t *testing.T) {
	type source struct{ Type, UID string }
	var d struct {
		UID, Title string
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
		Panels []struct {
			ID                       int
			Type, Title, Description string
			Datasource               source
			GridPos                  struct{ X, Y, W, H int }
			FieldConfig              struct{ Defaults struct{ Unit string } }
			Targets                  []struct {
				RefID, Expr, LegendFormat string
				Datasource                source
			}
		}
	}
	decoder := json.NewDecoder(strings.NewReader(genvtest.Read(t, filepath.Join(monitoringDocs, "genv-fleet.json"))))
	require.NoError(t, decoder.Decode(&d))
	require.NotEmpty(t, d.UID)
	require.Len(t, d.Templating.List, 1)
	require.Equal(t, "datasource", d.Templating.List[0].Name)
	require.Equal(t, "prometheus", d.Templating.List[0].Query)

	ids, titles, cells := map[int]bool{}, map[string]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		require.Positive(t, p.ID, p.Title)
		require.False(t, ids[p.ID] || titles[p.Title], "%d, %s is there twice", p.ID, p.Title)
		ids[p.ID], titles[p.Title] = true, true
		require.Contains(t, []string{"stat", "timeseries", "bargauge", "table"}, p.Type, p.Title)
		require.Contains(t, []string{"none", "s", "h", "percentunit"}, p.FieldConfig.Defaults.Unit, p.Title)
		require.NotEmpty(t, p.Description, p.Title)
		require.Equal(t, source{"prometheus", "${datasource}"}, p.Datasource, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		refs := map[string]bool{}
		for _, target := range p.Targets {
			require.Equal(t, p.Datasource, target.Datasource, p.Title)
			require.Contains(t, target.Expr, "genv_", p.Title)
			require.False(t, refs[target.RefID], "%s: refId %s is there twice", p.Title, target.RefID)
			refs[target.RefID] = true
		}
		require.True(t, p.GridPos.W > 0 && p.GridPos.H > 0 && p.GridPos.X+p.GridPos.W <= 24, p.Title)
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				require.Empty(t, cells[[2]int{x, y}], "%s is on top of it", p.Title)
				cells[[2]int{x, y}] = p.Title
			}
		}
	}
}
