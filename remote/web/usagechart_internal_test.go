package web

import (
	"encoding/xml"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/report"
)

func usageRow(name string, attached, idle int64) usage.Row {
	return usage.Row{Name: name, Sum: usage.Sum{Amounts: usage.Amounts{Attached: attached, Idle: idle, Used: attached - idle}, Peak: attached / 3600}}
}

func documentOf(by string, rows ...usage.Row) *report.Document {
	return report.New(&usage.Report{Since: 1_790_000_000, Until: 1_790_600_000, Rows: rows}, by, time.UTC)
}

func drawn(t *testing.T, d, days *report.Document) string {
	var b strings.Builder
	require.NoError(t, templates().ExecuteTemplate(&b, "charts", usageChartsOf(d, days)))
	return b.String()
}

// Charts need nothing else, are well-formed, and their names make no tags, whatever they are.
func TestUsageCharts(t *testing.T) {
	evil := `<script>alert("x")</script>`
	var rows, days []usage.Row
	for i := range 60 {
		rows = append(rows, usageRow(fmt.Sprintf("%s %d", evil, i), int64(i)*5000, int64(i)*1000))
		days = append(days, usageRow(fmt.Sprintf("2026-%02d-%02d", 1+i/28, 1+i%28), int64(i)*5000, int64(i)*1000))
	}
	for name, d := range map[string][2]*report.Document{
		"many":          {documentOf(report.ByUser, rows...), documentOf(report.ByDay, days...)},
		"by day":        {documentOf(report.ByDay, days...), nil},
		"none":          {documentOf(report.ByHost), documentOf(report.ByDay)},
		"next to none":  {documentOf(report.ByHost, usageRow("a", 1, 1)), documentOf(report.ByDay, usageRow("2026-11-20", 1, 1))},
		"only findings": {documentOf(report.ByHost, usage.Row{Name: "a", Sum: usage.Sum{Amounts: usage.Amounts{Findings: 1}}}), nil},
	} {
		text := drawn(t, d[0], d[1])
		require.NotContains(t, text, "<script", name)
		require.NotContains(t, text, "NaN", name)
		require.NotContains(t, text, "Inf", name)
		for _, reference := range []string{"http", "src=", "url(", "@import", "<link"} {
			require.NotContains(t, text, reference, name)
		}
		wellFormed(t, name, text)
	}
}

// Bars are as long as what they stand for, and the longest one has all the room.
func TestBars(t *testing.T) {
	page := drawn(t, documentOf(report.ByUser, usageRow("alice", 7200, 1800), usageRow("bob", 3600, 0)), nil)
	var bars []string
	for _, found := range regexp.MustCompile(`<rect class="(\w+)" x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="18">`).FindAllStringSubmatch(page, -1) {
		bars = append(bars, strings.Join(found[1:], " "))
	}
	require.Equal(t, []string{"used 150.0 187.5", "idle 337.5 62.5", "used 150.0 125.0"}, bars)
}

// wellFormed checks that tags are closed.
func wellFormed(t *testing.T, name, page string) {
	d := xml.NewDecoder(strings.NewReader(page))
	for {
		_, err := d.Token()
		if err == io.EOF { //nolint:errorlint // Token returns it as it is
			return
		}
		require.NoError(t, err, name)
	}
}
