package report_test

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/report"
	"github.com/seed-3119e985/genv/remote/usage/store"
)

func sums(rows ...store.Row) *store.Report {
	r := &store.Report{Since: 1_790_000_000, Until: 1_790_600_000, Begun: 1_780_000_000, Rows: rows}
	for i := range rows {
		r.Total.Add(&rows[i].Sum)
	}
	return r
}

func row(name string, attached, idle int64) store.Row {
	return store.Row{Name: name, Sum: usage.Sum{Amounts: usage.Amounts{Attached: attached, Idle: idle, Used: attached - idle}, Peak: attached / 3600}}
}

func TestDocument(t *testing.T) {
	three := func() *store.Report { return sums(row("bob", 3600, 0), row("", 0, 0), row("alice", 10800, 7200)) }
	for _, test := range []struct {
		name, by string
		top      int
		keys     []string
		shares   []float64
		leftOut  int
	}{
		{"most first", report.ByUser, 0, []string{"alice", "bob", ""}, []float64{0.75, 0.25, 0}, 0},
		{"top", report.ByUser, 2, []string{"alice", "bob"}, []float64{0.75, 0.25}, 1},
		{"top of more than there are", report.ByHost, 9, []string{"alice", "bob", ""}, []float64{0.75, 0.25, 0}, 0},
		{"days by date", report.ByDay, 0, []string{"", "alice", "bob"}, []float64{0, 0.75, 0.25}, 0},
		{"the last days", report.ByDay, 1, []string{"bob"}, []float64{0.25}, 2},
	} {
		d := report.New(three(), test.by, time.UTC)
		d.Top(test.top)
		require.Equal(t, test.keys, d.Keys(), test.name)
		for i, share := range test.shares {
			require.InDelta(t, share, d.Rows[i].Share, 0, test.name)
		}
		require.Equal(t, test.leftOut, d.LeftOut, test.name)
		require.Equal(t, int64(14400), d.Total.Attached, "also of what is left out")
	}
	empty := report.New(sums(), report.ByUser, time.UTC)
	require.NotNil(t, empty.Rows, "an empty list in JSON")
	require.Zero(t, empty.Total.Share)
}

func TestGroups(t *testing.T) {
	d := report.New(sums(row("alice", 3600, 0), row("bob", 3600, 3600), row("carol", 7200, 0)), report.ByUser, time.UTC)
	d.Groups(func(user string) []string {
		return map[string][]string{"alice": {"vision", "speech"}, "bob": {"vision"}, "carol": {"other"}}[user]
	})
	require.Equal(t, report.ByGroup, d.By)
	require.Equal(t, []string{"other", "vision", "speech"}, d.Keys())
	require.Equal(t, int64(7200), d.Rows[1].Attached)
	require.Equal(t, int64(3600), d.Rows[1].Idle)
	require.Nil(t, d.Rows[1].Peak, "when the members together had most isn't known")
	require.Equal(t, int64(14400), d.Total.Attached)
}

// The page needs nothing else, is well-formed, and its names make no tags, whatever they are.
func TestHTML(t *testing.T) {
	evil := `<script>alert("x")</script>`
	var rows, days []store.Row
	for i := range 60 {
		rows = append(rows, row(fmt.Sprintf("%s %d", evil, i), int64(i)*5000, int64(i)*1000))
		days = append(days, row(fmt.Sprintf("2026-%02d-%02d", 1+i/28, 1+i%28), int64(i)*5000, int64(i)*1000))
	}
	for name, d := range map[string][2]*report.Document{
		"many":          {report.New(sums(rows...), report.ByUser, time.UTC), report.New(sums(days...), report.ByDay, time.UTC)},
		"by day":        {report.New(sums(days...), report.ByDay, time.UTC), nil},
		"none":          {report.New(sums(), report.ByHost, time.UTC), report.New(sums(), report.ByDay, time.UTC)},
		"next to none":  {report.New(sums(row("a", 1, 1)), report.ByHost, time.UTC), report.New(sums(row("2026-11-20", 1, 1)), report.ByDay, time.UTC)},
		"only findings": {report.New(sums(store.Row{Name: "a", Sum: usage.Sum{Amounts: usage.Amounts{Findings: 1}}}), report.ByHost, time.UTC), nil},
	} {
		if d[0].By == report.ByUser {
			d[0].CompareWithEqual()
		}
		var b bytes.Buffer
		require.NoError(t, report.WriteHTML(&b, d[0], d[1]), name)
		page := b.String()
		require.NotContains(t, page, "<script", name)
		require.NotContains(t, page, "NaN", name)
		require.NotContains(t, page, "Inf", name)
		for _, reference := range []string{"http", "src=", "url(", "@import", "<link"} {
			require.NotContains(t, page, reference, name)
		}
		wellFormed(t, name, page)
	}
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

func TestFairShare(t *testing.T) {
	d := report.New(sums(row("alice", 30000, 0), row("bob", 6000, 3000), row("carol", 0, 0), row("", 9000, 0), row("(other)", 9000, 0)), report.ByUser, time.UTC)
	d.CompareWithEqual()
	require.Equal(t, &report.FairShare{Users: 2, Equal: 18000}, d.FairShare)
	type compared struct {
		of   float64
		over int64
	}
	got := make(map[string]compared)
	for i := range d.Rows {
		if r := &d.Rows[i]; r.OfEqual != nil {
			got[r.Key] = compared{*r.OfEqual, *r.OverEqual}
		}
	}
	require.Equal(t, map[string]compared{"alice": {30. / 18, 12000}, "bob": {6. / 18, -12000}}, got, "neither who had nothing nor who isn't known")

	none := report.New(sums(row("", 9000, 0)), report.ByUser, time.UTC)
	none.CompareWithEqual()
	require.Equal(t, &report.FairShare{}, none.FairShare)
}

func TestHideUsers(t *testing.T) {
	for _, test := range []struct {
		but  string
		want []string
	}{
		{"bob", []string{"bob", report.OtherUsers}},
		{"", []string{report.OtherUsers}},
		{"mallory", []string{report.OtherUsers}},
		{"Bob", []string{report.OtherUsers}},
	} {
		d := report.New(sums(row("alice", 3600, 0), row("bob", 3600, 3600), row("", 7200, 0)), report.ByUser, time.UTC)
		d.CompareWithEqual()
		d.HideUsers(test.but)
		require.Equal(t, test.want, d.Keys(), test.but)
		sum, share := int64(0), 0.0
		for i := range d.Rows {
			sum, share = sum+d.Rows[i].Attached, share+d.Rows[i].Share
		}
		require.Equal(t, d.Total.Attached, sum)
		require.InDelta(t, 1, share, 1e-9)
	}
	alone := report.New(sums(row("bob", 3600, 3600)), report.ByUser, time.UTC)
	alone.HideUsers("bob")
	require.Equal(t, []string{"bob"}, alone.Keys())
}
