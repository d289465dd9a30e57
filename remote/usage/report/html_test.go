package report_test

import (
	"bytes"
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

// The page needs nothing else, is well-formed, and its names make no tags, whatever they are.
func TestHTML(t *testing.T) {
	evil := `<script>alert("x")</script>`
	var rows, days []usage.Row
	for i := range 60 {
		rows = append(rows, row(fmt.Sprintf("%s %d", evil, i), int64(i)*5000, int64(i)*1000))
		days = append(days, row(fmt.Sprintf("2026-%02d-%02d", 1+i/28, 1+i%28), int64(i)*5000, int64(i)*1000))
	}
	for name, d := range map[string][2]*report.Document{
		"many":          {report.New(sums(rows...), report.ByUser, time.UTC), report.New(sums(days...), report.ByDay, time.UTC)},
		"by day":        {report.New(sums(days...), report.ByDay, time.UTC), nil},
		"none":          {report.New(sums(), report.ByHost, time.UTC), report.New(sums(), report.ByDay, time.UTC)},
		"next to none":  {report.New(sums(row("a", 1, 1)), report.ByHost, time.UTC), report.New(sums(row("2026-11-20", 1, 1)), report.ByDay, time.UTC)},
		"only findings": {report.New(sums(usage.Row{Name: "a", Sum: usage.Sum{Amounts: usage.Amounts{Findings: 1}}}), report.ByHost, time.UTC), nil},
	} {
		var b bytes.Buffer
		require.NoError(t, report.WritePage(&b, d[0], d[1]), name)
		text := b.String()
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
	var b bytes.Buffer
	require.NoError(t, report.WritePage(&b, report.New(sums(row("alice", 7200, 1800), row("bob", 3600, 0)), report.ByUser, time.UTC), nil))
	var bars []string
	for _, found := range regexp.MustCompile(`<rect class="(\w+)" x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="18">`).FindAllStringSubmatch(b.String(), -1) {
		bars = append(bars, strings.Join(found[1:], " "))
	}
	require.Equal(t, []string{"used 150.0 187.5", "idle 337.5 62.5", "used 150.0 125.0"}, bars)
}

// wellFormed checks that tags are closed.
func wellFormed(t *testing.T, name, page string) {
	page = strings.NewReplacer("<!DOCTYPE html>", "", `<meta charset="utf-8">`, "", `<meta name="viewport" content="width=device-width">`, "").Replace(page)
	d := xml.NewDecoder(strings.NewReader(page))
	for {
		_, err := d.Token()
		if err == io.EOF { //nolint:errorlint // Token returns it as it is
			return
		}
		require.NoError(t, err, name)
	}
}
