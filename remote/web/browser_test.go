package web_test

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/web"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// site is a fleet that browsers look at.
type site struct {
	*fleet
	*httptest.Server
	pages atomic.Int64 // that were asked for
}

func newSite(t *testing.T, f *fleet) *site {
	s := &site{fleet: f}
	handler := f.handler(func(o *web.Options) { o.Usage = f.usage })
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			s.pages.Add(1)
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// hostile is a fleet with unpleasant names of users and hosts.
func hostile() *fleet {
	f := fleetAt(time.Now(), 3, 4)
	for i := range f.round.Cluster.Hosts {
		h := &f.round.Cluster.Hosts[i]
		h.Name = snapshot.Hostname([]string{"gpu-with-a-very-long-name-in-a-very-long-domain.cluster.department.university.example.org", "gpu-2", "gpu-3"}[i])
		s := machine(i, 4, f.now)
		s.Warnings = []string{strings.Repeat("warning", 100), "<b>markup</b>"}
		for j := range s.Environments {
			s.Environments[j].Username = snapshot.Username([]string{strings.Repeat("wide", 60), "<script>alert(1)</script>", "a\x1b[31mb\u202ec", "名前が長い利用者の名前が長い利用者の名前が長い利用者"}[j%4])
			s.Environments[j].Config.Name = strings.Repeat("x", 200)
		}
		for j := range s.Processes {
			s.Processes[j].Command, s.Processes[j].Username = strings.Repeat("/very/long/path", 20), "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘!͖̬̰̙̗̿̋ͥͥ̂ͣ̐́́͜͞"
		}
		h.Snapshot = s
	}
	f.judged(enforce.Finding{ID: "1", Rule: enforce.RuleNonEnvProcesses, Host: f.round.Cluster.Hosts[0].Name, PID: 4000, User: "<script>alert(1)</script>", Command: strings.Repeat("x", 10<<10), Since: f.now})
	return f
}

// TestBrowserWithoutScripts: everything is there.
func TestBrowserWithoutScripts(t *testing.T) {
	b := startChromium(t)
	f := newFleet(20, 8)
	f.judged(usual(f.now)...)
	s := newSite(t, f)
	page := b.open(s.URL+"/", look{width: 1280, height: 900})
	var tiles, users int
	page.evaluate(`document.querySelectorAll(".tiles > li").length`, &tiles)
	page.evaluate(`document.querySelectorAll("section[aria-labelledby=users] tbody tr").length`, &users)
	require.Equal(t, 20, tiles)
	require.Equal(t, 12, users)
	var state string
	page.evaluate(`document.getElementById("connection").textContent`, &state)
	require.Empty(t, state)
	page.evaluate(`document.querySelector('form.filter input').value = "gpu-07"; document.querySelector("form.filter button").click(); ""`, &state)
	page.wait(`document.querySelectorAll(".tiles > li").length === 1`)
	require.Empty(t, b.problems())
}

// TestBrowserFollows: a page with scripts shows what happens, and keeps what somebody does there.
func TestBrowserFollows(t *testing.T) {
	b := startChromium(t)
	f := newFleet(3, 4)
	s := newSite(t, f)
	page := b.open(s.URL+"/", look{width: 1280, height: 900, scripts: true})
	page.wait(`document.getElementById("connection").textContent === "live"`)
	show := func(users ...snapshot.Username) {
		f.round.Number++
		machine := machine(0, 4, f.now)
		for i := range machine.Environments {
			machine.Environments[i].Username = users[i%len(users)]
		}
		f.round.Cluster.Hosts[0].Snapshot = machine
		f.feed.Consume(f.round.AtEnd(), nil)
	}
	var done string
	page.evaluate(`window.unchanged = true; document.querySelector('main a[href="/h/gpu-02"]').focus(); ""`, &done)
	show("newcomer")
	page.wait(`document.querySelector('main a[href="/u/newcomer"]') && window.unchanged`)
	page.wait(`document.activeElement.getAttribute("href") === "/h/gpu-02"`)

	page.evaluate(`document.getElementById("q").focus(); document.getElementById("q").value = "half a na"; ""`, &done)
	show("another")
	before := s.pages.Load()
	page.wait(`document.getElementById("q").value === "half a na" && document.querySelector('main a[href="/u/newcomer"]')`)
	page.evaluate(`document.getElementById("q").blur(); ""`, &done)
	page.wait(`document.querySelector('main a[href="/u/another"]')`)
	require.Greater(t, s.pages.Load(), before)
	require.Empty(t, b.problems(), "nothing violates the policy")

	s.CloseClientConnections()
	require.NoError(t, s.Listener.Close())
	page.wait(`document.getElementById("connection").textContent === "connection lost"`)
}

// TestBrowserReport: the form asks for other reports, without a script.
func TestBrowserReport(t *testing.T) {
	b := startChromium(t)
	f := fleetAtNoon(20, 8)
	f.usage = history(t, f.now, 32, "alice")
	s := newSite(t, f)
	page := b.open(s.URL+"/", look{width: 1280, height: 900})
	var done string
	page.evaluate(`document.querySelector('nav a[href="/report"]').click(); ""`, &done)
	page.wait(`document.querySelectorAll(".figures tbody tr").length === 12`)
	page.evaluate(`document.getElementById("by").value = "host"; document.getElementById("range").value = "30d"; document.querySelector("form button").click(); ""`, &done)
	page.wait(`location.search.includes("by=host") && location.search.includes("range=30d") && document.querySelectorAll(".figures tbody tr").length === 12`)
	day := f.now.AddDate(0, 0, -3).Format(time.DateOnly)
	page.evaluate(`document.getElementById("by").value = "day"; document.getElementById("range").value = "dates"; document.getElementById("since").value = "`+day+`"; document.querySelector("form button").click(); ""`, &done)
	page.wait(`location.search.includes("by=day") && document.querySelectorAll(".figures tbody tr").length === 4 && document.getElementById("since").value === "` + day + `"`)
	require.Empty(t, b.problems())
}

// TestAccessibility: the rules that can be checked, in both themes, on a phone and a screen.
func TestAccessibility(t *testing.T) {
	audit := proctest.ReadFile(t, "testdata/audit.js")
	b := startChromium(t)
	var wrong []string
	bad := `<p style="color:%23999">pale</p><img src="x"><input><table><thead><tr><th>x</thead><tbody><tr><td><td></table><h3>3</h3><a href="x"></a><div style="width:9999px">wide</div>`
	b.open("data:text/html,"+bad, look{400, 400, false, true}).evaluate(string(audit), &wrong)
	found := strings.Join(wrong, "\n")
	for _, part := range []string{"no language", "no title", "not one main", "not one h1", "left out", "no alt", "no label", "no name", "no scope", "without a name", "without a header", "wider than", "contrast"} {
		require.Contains(t, found, part, "the audit works")
	}
	b.problems()
	f := fleetAt(time.Now().Add(-24*time.Hour), 20, 8)
	f.lived()
	f.judged(usual(f.now)...)
	evil := hostile()
	f.reserving("frank", "camera ready")
	evil.reserving(strings.Repeat("wide<b>", 60), strings.Repeat("<script>", 20))
	f.usage, evil.usage = history(t, f.now, 32, "alice"), history(t, evil.now, 3, snapshot.Username(strings.Repeat("wide<b>", 60)))
	for name, s := range map[string]*site{"usual": newSite(t, f), "hostile": newSite(t, evil)} {
		host := string(s.round.Cluster.Hosts[0].Name)
		for _, path := range []string{"/", "/h/" + host, "/h/gpu-06", "/u/alice", "/findings", "/week", "/report?by=user"} {
			looks := []look{{320, 800, true, true}, {1280, 900, false, true}}
			page := b.open(s.URL+path, looks[0])
			for _, l := range looks {
				page.resize(l)
				page.evaluate(string(audit), &wrong)
				require.Empty(t, wrong, "%s %s, %s", name, path, l)
			}
			page.close()
		}
	}
	for _, problem := range b.problems() {
		require.Contains(t, problem, "404", "only the pages that aren't there")
	}
}

// TestScreenshots takes pictures to look at, if GENV_SCREENSHOTS names a folder for them.
func TestScreenshots(t *testing.T) {
	folder := os.Getenv("GENV_SCREENSHOTS")
	if folder == "" {
		t.Skip("GENV_SCREENSHOTS names no folder")
	}
	b := startChromium(t)
	f := fleetAt(time.Now().Add(-24*time.Hour), 20, 8)
	f.lived()
	f.judged(usual(f.now)...)
	f.usage = history(t, f.now, 32, "alice")
	for fleet, s := range map[string]*site{"usual": newSite(t, f), "many": newSite(t, newFleet(1000, 8)), "hostile": newSite(t, hostile())} {
		for name, path := range map[string]string{"overview": "/", "host": "/h/" + string(s.round.Cluster.Hosts[0].Name), "failed": "/h/gpu-06", "user": "/u/alice", "findings": "/findings", "report": "/report", "report-host": "/report?by=host&range=90d"} {
			if fleet == "many" && name != "overview" || fleet != "usual" && strings.HasPrefix(name, "report") {
				continue
			}
			for _, l := range []look{{390, 844, false, true}, {390, 844, true, true}, {1280, 900, false, true}, {1280, 900, true, true}, {1920, 1080, false, true}, {1920, 1080, true, true}} {
				page := b.open(s.URL+path, l)
				page.wait(`document.getElementById("connection").textContent === "live"`)
				page.picture(filepath.Join(folder, fmt.Sprintf("%s-%s-%d-%t.png", fleet, name, l.width, l.dark)), l.width < 1900 && fleet != "many")
				page.close()
			}
		}
	}
}

// palette are the colours of a theme.
func palette(css string) map[string]string {
	colours := make(map[string]string)
	for _, m := range regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{6});`).FindAllStringSubmatch(css, -1) {
		colours[m[1]] = m[2]
	}
	return colours
}

// luminance is that of WCAG 2.
func luminance(t *testing.T, colour string) float64 {
	n := proctest.Try(strconv.ParseUint(strings.TrimPrefix(colour, "#"), 16, 32)).OK(t, colour)
	linear := func(v uint64) float64 {
		c := float64(v&255) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(n>>16) + 0.7152*linear(n>>8) + 0.0722*linear(n)
}

// TestContrast: texts on what they are on, in both themes.
func TestContrast(t *testing.T) {
	content := proctest.ReadFile(t, "static/style.css")
	light, rest, found := strings.Cut(string(content), "@media (prefers-color-scheme: dark)")
	require.True(t, found)
	dark, _, _ := strings.Cut(rest, "*, *::before")
	for theme, colours := range map[string]map[string]string{"light": palette(light), "dark": palette(dark)} {
		pairs := [][2]string{{"free-text", "free"}, {"busy-text", "busy"}, {"idle-text", "idle"}, {"finding-text", "finding"}, {"exempt-text", "exempt"}, {"unknown-text", "unknown"}}
		for _, text := range []string{"text", "muted", "link", "green", "red", "amber", "blue"} {
			pairs = append(pairs, [2]string{text, "card"}, [2]string{text, "page"})
		}
		for _, text := range []string{"text", "muted", "red", "link"} {
			pairs = append(pairs, [2]string{text, "bad"}, [2]string{text, "note"})
		}
		for _, pair := range pairs {
			require.NotEmpty(t, colours[pair[0]], "%s %s", theme, pair[0])
			require.NotEmpty(t, colours[pair[1]], "%s %s", theme, pair[1])
			a, b := luminance(t, colours[pair[0]])+0.05, luminance(t, colours[pair[1]])+0.05
			require.GreaterOrEqual(t, max(a, b)/min(a, b), 4.5, "%s: %s on %s", theme, pair[0], pair[1])
		}
	}
}
