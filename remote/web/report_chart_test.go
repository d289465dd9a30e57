package web_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/web"
)

// chartDocument has some days of three users, one of whom has an unpleasant name.
func chartDocument(days int) *usage.Report {
	begin := time.Date(2026, 10, 30, 0, 0, 0, 0, time.UTC)
	r := &usage.Report{By: usage.ByUser, Since: begin, Until: begin.AddDate(0, 0, days), Begun: begin, Days: make(usage.Days), Total: usage.ReportRow{Peak: new(int64)}}
	add := func(user string, day int, a usage.Amounts) {
		for _, n := range []*int64{&a.Attached, &a.Used, &a.Idle, &a.Unknown} {
			*n *= 3600
		}
		r.Days.Add(user, begin.AddDate(0, 0, day).Format(time.DateOnly), &a)
		r.Rows = append(r.Rows, usage.ReportRow{Key: user, Amounts: a})
		r.Total.Add(&a)
	}
	add("alice", 0, usage.Amounts{Attached: 24, Used: 18, Idle: 6})
	add("alice", 2, usage.Amounts{Attached: 40, Used: 40})
	add("<b>bob</b>", 0, usage.Amounts{Used: 12})
	add("carol", 2, usage.Amounts{Attached: 6, Used: 2, Idle: 1, Unknown: 5})
	r.Arrange()
	return r
}

// aDay is a report of the first day of the epoch.
func aDay(by string, rows ...usage.ReportRow) *usage.Report {
	r := &usage.Report{By: by, Since: time.Unix(1, 0).UTC(), Until: time.Unix(86400, 0).UTC(), Begun: time.Unix(0, 0).UTC(), Rows: rows, Total: usage.ReportRow{Peak: new(int64)}}
	r.Arrange()
	return r
}

func reportFile(t *testing.T, d *usage.Report) string {
	var b bytes.Buffer
	require.NoError(t, web.WriteReport(&b, d))
	return b.String()
}

// TestChart draws used, idle and unknown hours by day.
func TestChart(t *testing.T) {
	file := reportFile(t, chartDocument(3))
	svg := regexp.MustCompile(`(?s)<svg class="chart".*?</svg>`).FindString(file) + "\n"
	const golden = "testdata/chart.svg"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile(golden, []byte(svg), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), svg)
	for _, text := range []string{
		"<tr><th scope=\"row\">2026-10-30</th><td class=\"n\">18.0<small>6.0 idle</small></td><td class=\"n\">12.0</td><td class=\"n\">0.0</td></tr>",
		"<td class=\"n\">2.0<small>1.0 idle</small><small>8.0 unknown</small></td>", "&lt;b&gt;bob&lt;/b&gt;",
	} {
		present(t, file, text, "the table")
	}
}

// TestReportFile needs nothing else: no script, and nothing from elsewhere.
func TestReportFile(t *testing.T) {
	file := reportFile(t, chartDocument(3))
	require.NotRegexp(t, `(?i)<script|<link|<img|https?:|@import|src=|href=|ZgotmplZ|\son\w+=`, file)
	for name, test := range map[string]struct {
		document *usage.Report
		want     []string
	}{
		"months": {chartDocument(101), []string{"GPU hours by month", ">2026-10</text>", ">2027-02</text>"}},
		"days":   {chartDocument(100), []string{"GPU hours by day", ">30 Oct</text>"}},
		"of days": {
			aDay(usage.ByDay, usage.ReportRow{Key: "1970-01-01", Amounts: usage.Amounts{Used: 60}}),
			[]string{`<title id="chart-title">GPU hours by day. The table`, "(all GPUs)", ">0.005</text>"},
		},
		"nothing": {aDay(usage.ByUser), []string{"No usage is recorded"}},
	} {
		for _, text := range test.want {
			present(t, reportFile(t, test.document), text, name)
		}
	}
	require.NotContains(t, reportFile(t, aDay(usage.ByUser, usage.ReportRow{Key: "a"})), "<svg", "no hours")
}

// TestBrowserReportFile: a browser shows the picture of a file where its table says, and knows its name.
func TestBrowserReportFile(t *testing.T) {
	b := startChromium(t)
	path := filepath.Join(t.TempDir(), "report.html")
	require.NoError(t, os.WriteFile(path, []byte(reportFile(t, chartDocument(3))), 0o600))
	page := b.open("file://"+path, look{width: 400, height: 900})
	var heights []float64
	page.evaluate(`[...document.querySelectorAll("svg.chart g rect")].map((e) => e.getBoundingClientRect().height)`, &heights)
	require.Len(t, heights, 7)
	perHour := heights[0] / 18
	for i, hours := range []float64{18, 6, 12, 40, 2, 1, 8} {
		require.InDelta(t, hours*perHour, heights[i], 0.3)
	}
	var tree struct {
		Nodes []struct{ Role, Name struct{ Value any } }
	}
	page.call(page.session, "Accessibility.getFullAXTree", object{}, &tree)
	var said []string
	for _, node := range tree.Nodes {
		if name, ok := node.Name.Value.(string); ok && node.Role.Value == "image" {
			said = append(said, name)
		}
	}
	require.Equal(t, []string{"GPU hours by day, stacked by user; what was idle is hatched. The table has the numbers."}, said)
	require.Empty(t, b.problems())
}
