package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/web"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// reserving has users reserve GPUs of the first hosts: one now, one from tomorrow on beside another one, and one that
// is over.
func (f *fleet) reserving(user, reason string) *fleet {
	for i := range 3 {
		s := *f.round.Cluster.Hosts[i].Snapshot
		f.round.Cluster.Hosts[i].Snapshot = &s
		add := func(n int, from, until time.Duration) {
			s.Reservations = append(s.Reservations, snapshot.Reservation{
				ID: fmt.Sprintf("id%d%d", i, n), UID: 1000, Username: snapshot.Username(user), GPUs: n, From: f.now.Add(from), Until: f.now.Add(until),
				Made: f.now, Known: 8, Reason: reason,
			})
		}
		add(1, -time.Hour, 30*time.Hour)
		add(2, 20*time.Hour, 40*time.Hour)
		add(3, -20*time.Hour, -10*time.Hour)
	}
	f.round.Number++
	f.feed.Consume(f.round.AtEnd(), nil)
	return f
}

func TestWeek(t *testing.T) {
	f := newFleet(20, 8)
	present(t, pageOf(t, f.handler(), "/week"), "Nothing is reserved this week", "")
	absent(t, pageOf(t, f.handler(), "/"), `href="/week"`, "no host keeps reservations")
	f.reserving("frank", "camera; ready, now")
	for names, want := range map[web.Names]bool{web.AllNames: true, web.OwnName: false, web.NoNames: false} {
		handler := f.handler(naming(names))
		page := pageOf(t, handler, "/week")
		require.Equal(t, 6, strings.Count(page, "</title><rect"), "those that have not ended")
		require.Equal(t, 6, strings.Count(page, `data-label="Who"`))
		require.NotContains(t, page, "ZgotmplZ")
		calendar := get(t, handler, "/reservations.ics")
		require.Equal(t, "text/calendar; charset=utf-8", calendar.Header().Get("Content-Type"))
		for _, text := range []string{page, calendar.Body.String()} {
			require.Equal(t, want, strings.Contains(text, "frank"), names)
			require.Equal(t, want, strings.Contains(text, "camera"), names)
		}
		present(t, pageOf(t, handler, "/"), `href="/week"`, "")
	}
	handler := f.handler(func(o *web.Options) { o.Names, o.Proxied = web.OwnName, true })
	as := func(user string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("X-Forwarded-User", user) }
	}
	present(t, pageOf(t, handler, "/week", as("frank")), "camera", "own reservations")
	absent(t, pageOf(t, handler, "/week", as("alice")), "camera", "those of others")
	require.NotContains(t, get(t, handler, "/reservations.ics", as("frank")).Body.String(), "frank", "the feed has names for all or none")
}

// readCalendar prints the events of a calendar, read by Debian's python3-icalendar.
const readCalendar = `import icalendar, json, sys
events = icalendar.Calendar.from_ical(sys.stdin.buffer.read()).walk("VEVENT")
texts = [[str(e.get(key, "")) for key in ("UID", "SUMMARY", "DESCRIPTION")] for e in events]
print(json.dumps([texts, [[int(e[key].dt.timestamp()) for key in ("DTSTART", "DTEND")] for e in events]]))`

// A calendar program reads what was reserved, whatever is in it.
func TestCalendar(t *testing.T) {
	proctest.Need(t, exec.Command("/usr/bin/python3", "-c", "import icalendar").Run() == nil, "python3-icalendar")
	for _, reason := range []string{"", "camera; ready, now\\s", strings.Repeat("лонг ", 39), "a\r\nEND:VCALENDAR\x1b[31m", "\"quoted\": x=1"} {
		f := newFleet(3, 8).reserving("frank, the; 1\\st", reason)
		text := get(t, f.handler(), "/reservations.ics").Body.String()
		for line := range strings.SplitSeq(strings.TrimSuffix(text, "\r\n"), "\r\n") {
			require.LessOrEqual(t, len(line), 75)
			require.True(t, utf8.ValidString(line))
			require.NotContains(t, line, "\n")
		}
		program := exec.Command("/usr/bin/python3", "-c", readCalendar)
		program.Stdin = strings.NewReader(text)
		var events [][3]string
		var times [][2]int64
		require.NoError(t, json.Unmarshal(proctest.Try(program.Output()).OK(t), &[]any{&events, &times}), text)
		require.Len(t, events, 6)
		for i, e := range events {
			n := i%2 + 1
			require.Equal(t, [2]int64{
				f.now.Add([]time.Duration{-time.Hour, 20 * time.Hour}[n-1]).Unix(), f.now.Add([]time.Duration{30 * time.Hour, 40 * time.Hour}[n-1]).Unix(),
			}, times[i])
			gpus := []string{"1 GPU", "2 GPUs"}[n-1]
			require.Equal(t, fmt.Sprintf("id%d%d@gpu-0%d", i/2, n, i/2+1), e[0])
			require.Equal(t, fmt.Sprintf("frank, the; 1\\st: %s on gpu-0%d", gpus, i/2+1), e[1])
			if reason == "camera; ready, now\\s" {
				require.Equal(t, reason, e[2])
			}
		}
	}
}

// TestBrowserOfAWeek: the picture and the table are there on a telephone, and the keyboard reaches the table.
func TestBrowserOfAWeek(t *testing.T) {
	b := startChromium(t)
	f := newFleet(20, 8).reserving("frank", "camera ready")
	s := newSite(t, f)
	for _, width := range []int{400, 1280} {
		page := b.open(s.URL+"/week", look{width: width, height: 900})
		var bars, wide int
		var role, label string
		page.evaluate(`document.querySelectorAll("svg.week > svg").length`, &bars)
		page.evaluate(`document.documentElement.scrollWidth`, &wide)
		page.evaluate(`document.querySelector("svg.week").getAttribute("role")`, &role)
		page.evaluate(`document.querySelector("svg.week").getAttribute("aria-label")`, &label)
		require.Equal(t, 6, bars)
		require.LessOrEqual(t, wide, width)
		require.Equal(t, "img", role)
		require.NotEmpty(t, label)
		var rows int
		var reached bool
		page.evaluate(`document.querySelectorAll("section table tbody tr").length`, &rows)
		page.evaluate(`(document.querySelector("section .table").focus(), document.activeElement.matches(".table"))`, &reached)
		require.Equal(t, 6, rows)
		require.True(t, reached)
		var crossed, overlap bool // the names of hosts: by the line of now, by bars
		page.evaluate(`document.querySelector("svg.week .host ~ .now") !== null`, &crossed)
		require.False(t, crossed)
		page.evaluate(`[...document.querySelectorAll("svg.week .host")].some(h => [...document.querySelectorAll("svg.week > svg")].some(b => {
			const x = h.getBoundingClientRect(), y = b.getBoundingClientRect();
			return x.top < y.bottom - 1 && y.top < x.bottom - 1 && x.left < y.right && y.left < x.right && x.bottom - y.top > 6; }))`, &overlap)
		require.False(t, overlap)
		page.close()
	}
	require.Empty(t, b.problems())
}
