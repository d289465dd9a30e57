package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/remote/web"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// history is a database with what a fleet showed in the last days; the first host's first
// attachment is from the user who is named.
func history(t *testing.T, now time.Time, days int, first snapshot.Username) *usage.Reader {
	path := filepath.Join(t.TempDir(), store.FileName)
	s := proctest.Try(store.Open(t.Context(), path, store.Options{In: time.Local})).OK(t)
	account := usage.NewMeter(time.Local)
	account.MaxGap = 12 * time.Hour
	begin := now.AddDate(0, 0, -days)
	for at := begin; !at.After(now); at = at.Add(6 * time.Hour) {
		var cluster snapshot.Cluster
		for i := range 12 {
			cluster.Hosts = append(cluster.Hosts, snapshot.Host{Name: snapshot.Hostname(fmt.Sprintf("gpu-%02d", i+1)), Snapshot: machine(i+at.Day()/9%3, 6, at)})
		}
		if h := cluster.Hosts[0].Snapshot; len(h.Environments) > 0 {
			h.Environments[0].Username = first
		}
		account.Look(at, cluster)
	}
	require.NoError(t, s.Add(t.Context(), &usage.Entry{
		Sums: account.Take(), Since: begin.Unix(), Mark: usage.Mark{Until: now.Unix(), Ended: true},
		Gaps: []usage.Gap{{Since: begin.Unix() + 7200, Until: begin.Unix() + 10800}},
	}))
	require.NoError(t, s.Close())
	open := func() (usage.Store, error) { return store.OpenToRead(t.Context(), path, store.Options{In: time.Local}) }
	groups := func(context.Context, []string) func(string) []string {
		return func(user string) []string { return []string{"group-" + user[:min(1, len(user))]} }
	}
	return usage.NewReader(open, func() time.Time { return now }, groups)
}

func reporting(reader *usage.Reader) func(*web.Options) {
	return func(o *web.Options) { o.Usage = reader }
}

func document(t *testing.T, handler http.Handler, path string, change ...func(*http.Request)) (d usage.Report) {
	t.Helper()
	w := get(t, handler, path, change...)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &d))
	return d
}

func TestReport(t *testing.T) {
	f := fleetAtNoon(20, 8)
	handler := f.handler(reporting(history(t, f.now, 32, "alice")))
	present(t, pageOf(t, handler, "/"), `<a href="/report">Report</a>`, "/")
	page := pageOf(t, handler, "/report")
	presentAll(t, page, "/report", `aria-current="page">Report`, ">GPU hours<", ">heidi<", `href="/api/v1/report?by=user&amp;range=7d&amp;top=20"`, `data-least="60000"`)
	absent(t, page, "ZgotmplZ", "/report")
	long := pageOf(t, handler, "/report?by=user&range=30d")
	presentAll(t, long, "30 days", `<option value="user" selected>`, `<option value="30d" selected>the last 30 days</option>`, `href="/api/v1/report?by=user&amp;range=30d&amp;top=20"`)
	for by, want := range map[string]int{"user": 12, "host": 12, "model": 2, "day": 8, "group": 12} {
		d := document(t, handler, "/api/v1/report?top=50&by="+by)
		require.Equal(t, usage.ReportSchema, d.Schema)
		require.Equal(t, by, d.By)
		require.Len(t, d.Rows, want, by)
		present(t, pageOf(t, handler, "/report?by="+by), "Figures", by)
	}
	week, month := document(t, handler, "/api/v1/report?by=user"), document(t, handler, "/api/v1/report?by=user&range=30d")
	require.InDelta(t, 7*24, week.Until.Sub(week.Since).Hours(), 1.01)
	require.Greater(t, month.Total.Attached, 3*week.Total.Attached)
	require.False(t, week.Until.After(f.now))
	require.Len(t, document(t, handler, "/api/v1/report?by=host&top=3").Rows, 3)
	day := f.now.AddDate(0, 0, -3)
	dates := document(t, handler, "/api/v1/report?by=user&since="+day.Format(time.DateOnly)+"&until="+day.AddDate(0, 0, 1).Format(time.DateOnly))
	require.Equal(t, usage.DayOf(day.Unix(), time.Local), dates.Since.Unix())
	require.Equal(t, usage.NextDay(day.Unix(), time.Local), dates.Until.Unix())
	old := pageOf(t, handler, "/report?range=dates&since=2020-01-01&until=2020-02-01")
	present(t, old, "No usage is recorded of this time", "long ago")
	for path, text := range map[string]string{
		"by=week": "write user", "top=0": "a number from 1", "top=x": "a number", "top=100000": "a number", "range=8d": "write 7d", "range=dates": "write a date", "since=x": "write a date",
		"since=2026-01-02&until=yesterday": "write a date", "since=2026-01-02&until=2026-01-02": "not before", "since=2999-01-01": "not before",
	} {
		for _, prefix := range []string{"/report?", "/api/v1/report?"} {
			w := get(t, handler, prefix+path)
			require.Equal(t, http.StatusBadRequest, w.Code, path)
			present(t, w.Body.String(), text, path)
		}
	}
}

// TestHoursOfAUser: the page of a user has the figures of the report, also of somebody who has nothing now.
func TestHoursOfAUser(t *testing.T) {
	f := newFleet(20, 8)
	absent(t, pageOf(t, f.handler(), "/u/alice"), "GPU hours", "none are recorded")
	handler := f.handler(reporting(history(t, f.now, 32, "frieda")))
	for _, row := range document(t, handler, "/api/v1/report?by=user").Rows[:3] {
		present(t, pageOf(t, handler, "/u/"+row.Key), "<dt>GPU hours</dt><dd>"+usage.Hours(row.Used)+"</dd>", row.Key)
	}
	present(t, pageOf(t, handler, "/u/frieda"), "hours without being used", "has nothing now")
	require.Equal(t, http.StatusNotFound, get(t, handler, "/u/nobody").Code)
}

// TestReportOfNone: a controller without a history says so.
func TestReportOfNone(t *testing.T) {
	f := newFleet(2, 2)
	handler := f.handler()
	absent(t, pageOf(t, handler, "/"), `href="/report"`, "/")
	w := get(t, handler, "/report")
	require.Equal(t, http.StatusNotFound, w.Code)
	present(t, w.Body.String(), "keeps no usage database", "/report")

	var failure atomic.Value
	failed := 0
	open := func() (usage.Store, error) { return nil, failure.Load().(error) } //nolint:forcetypeassert // set below
	handler = f.handler(reporting(usage.NewReader(open, time.Now, nil)), func(o *web.Options) { o.Failed = func(error) { failed++ } })
	for _, test := range []struct {
		err    error
		status int
		says   string
	}{
		{fmt.Errorf("it: %w", fs.ErrNotExist), http.StatusNotFound, "No usage is recorded yet"},
		{fmt.Errorf("it: %w", usage.ErrBusy), http.StatusServiceUnavailable, "busy"},
		{fmt.Errorf("it: %w", usage.ErrDamaged), http.StatusInternalServerError, "log says why"},
	} {
		failure.Store(test.err)
		for _, path := range []string{"/report", "/api/v1/report"} {
			w := get(t, handler, path)
			require.Equal(t, test.status, w.Code)
			present(t, w.Body.String(), test.says, path)
			absent(t, w.Body.String(), "damaged", path)
		}
	}
	require.Equal(t, 2, failed, "only what isn't the viewer's is logged")
	require.Equal(t, http.StatusNotFound, get(t, handler, "/report?by=group").Code)
}

// TestReportHidesNames: only a user sees the user's name, and the sums are right.
func TestReportHidesNames(t *testing.T) {
	const secret = "mallory-secret"
	f := newFleet(2, 2)
	reader := history(t, f.now, 3, secret)
	all := f.handler(reporting(reader))
	whole := document(t, all, "/api/v1/report?by=user")
	var own usage.ReportRow
	wholeSum := int64(0)
	for _, row := range whole.Rows {
		if wholeSum += row.Attached; row.Key == secret {
			own = row
		}
	}
	require.NotZero(t, own.Attached)
	others := []string{"bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy", "niaj"}
	for names, logins := range map[web.Names][]string{web.NoNames: {"", "alice", secret}, web.OwnName: {"alice", secret}} {
		handler := f.handler(naming(names), reporting(reader), func(o *web.Options) {
			if names == web.OwnName {
				o.Access = passwords(t)
			}
		})
		for _, login := range logins {
			hidden := append([]string{"alice", secret}, others...)
			for _, query := range []string{"by=user", "by=host", "by=model", "by=day", "by=user&top=1", "by=group", "by=mallory"} {
				for _, path := range []string{"/report?", "/api/v1/report?"} {
					w := get(t, handler, path+query, as(login))
					for _, name := range hidden {
						if names == web.OwnName && name == login {
							continue
						}
						absent(t, w.Body.String(), strings.TrimSuffix(name, "-secret"), fmt.Sprintf("%s of %s by %q", path+query, names, login))
					}
					if query == "by=group" {
						require.Equal(t, http.StatusBadRequest, w.Code)
					}
				}
			}
			absent(t, pageOf(t, handler, "/report", as(login)), `value="group"`, "the form")
			d := document(t, handler, "/api/v1/report?by=user", as(login))
			sum := int64(0)
			for _, row := range d.Rows {
				sum += row.Attached
			}
			require.Equal(t, wholeSum, sum)
			if names == web.OwnName && login == secret {
				require.Equal(t, own, d.Rows[0])
				present(t, pageOf(t, handler, "/report", as(login)), secret, "the own name")
			}
		}
	}
	require.Equal(t, whole.Rows, document(t, all, "/api/v1/report?by=user").Rows, "what others see is not changed")
}

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
	want := proctest.ReadFile(t, golden)
	require.Equal(t, string(want), svg)
	presentAll(t, file, "the table",
		"<tr><th scope=\"row\">2026-10-30</th><td class=\"n\">18.0<small>6.0 idle</small></td><td class=\"n\">12.0</td><td class=\"n\">0.0</td></tr>",
		"<td class=\"n\">2.0<small>1.0 idle</small><small>8.0 unknown</small></td>", "&lt;b&gt;bob&lt;/b&gt;")
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
		presentAll(t, reportFile(t, test.document), name, test.want...)
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
