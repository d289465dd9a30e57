package web

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"time"

	ics "github.com/arran4/golang-ical"

	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// week shows reservations from today: hosts down, hours across, in a chart's units.
type week struct {
	Days, Hosts []chartLabel
	Rows        []weekRow
	More        int // rows left out
	Height      int
	Now         string // its place
}

type weekRow struct {
	Host snapshot.Hostname
	live.Reservation
	X, Width  string
	Y, Colour int
}

const (
	weekDays   = 7
	weekTop    = 20 // below the days' names
	weekHeight = 24 // per lane
	maxBooked  = 500
)

func (p *page) Reserves() bool {
	return slices.ContainsFunc(p.Fleet.Hosts, func(h live.FleetHost) bool {
		return h.Reserved != nil || len(h.Reservations) > 0
	})
}

func weekPage(p *page, _ *http.Request) (string, any) {
	p.Title = "Reserved GPUs"
	return "week", newWeek(p.Fleet.FleetState, p.Now.Local())
}

func newWeek(f *live.FleetState, now time.Time) *week {
	begin := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location())
	end := begin.AddDate(0, 0, weekDays)
	at := func(t time.Time) float64 { // per cent
		share := float64(t.Sub(begin)) / float64(end.Sub(begin))
		return 100 * min(max(share, 0), 1)
	}
	percent := func(x float64) string { return fmt.Sprintf("%.3f", x) }
	w := &week{Height: weekTop, Now: percent(at(now))}
	for day := range weekDays {
		date := begin.AddDate(0, 0, day)
		w.Days = append(w.Days, chartLabel{X: at(date), Text: date.Format("Mon 2")})
	}
	for i := range f.Hosts {
		h := &f.Hosts[i]
		var lanes []time.Time // taken until
		for _, r := range h.Reservations {
			if !r.From.Before(end) || !r.Until.After(begin) {
				continue
			}
			if len(w.Rows) == maxBooked {
				w.More++
				continue
			}
			if len(lanes) == 0 {
				w.Hosts = append(w.Hosts, chartLabel{Y: float64(w.Height + 16), Text: hostName(h.Name)})
				w.Height += weekHeight
			}
			lane := slices.IndexFunc(lanes, func(until time.Time) bool { return !until.After(r.From) })
			if lane < 0 {
				lane = len(lanes)
				lanes = append(lanes, time.Time{})
			}
			lanes[lane] = r.Until
			x := at(r.From)
			w.Rows = append(w.Rows, weekRow{
				h.Name, r, percent(x), percent(max(0.5, at(r.Until)-x)), w.Height + lane*weekHeight, colourOf(r.User),
			})
		}
		w.Height += len(lanes) * weekHeight
	}
	slices.SortStableFunc(w.Rows, func(a, b weekRow) int { return cmp.Compare(a.Host, b.Host) })
	return w
}

func colourOf(user snapshot.Username) int {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(user))
	return int(hash.Sum32() % chartColours)
}

// calendar has names if all viewers may see them.
func (s *server) calendar(w http.ResponseWriter, _ *http.Request) {
	fleet := s.feed.For("").Fleet()
	if s.options.Names == AllNames {
		fleet = s.feed.Public().Fleet()
	}
	w.Header().Set("Content-Type", "text/calendar; charset=utf-8")
	w.Header().Set("Content-Disposition", `inline; filename="reservations.ics"`)
	_, _ = w.Write([]byte(calendarOf(fleet))) // the program may be gone
}

// calendarOf follows RFC 5545, and has no control characters.
func calendarOf(f *live.FleetState) string {
	c := ics.NewCalendar()
	c.SetProductId("-//genv//reservations//EN")
	for i := range f.Hosts {
		host := string(f.Hosts[i].Name)
		for _, r := range f.Hosts[i].Reservations {
			what := fmt.Sprintf("%s on %s", text.Plural(r.GPUs, "GPU"), host)
			if r.User != "" {
				what = string(r.User) + ": " + what
			}
			event := c.AddEvent(text.OneLine(r.ID + "@" + host))
			event.SetDtStampTime(f.Time)
			event.SetStartAt(r.From)
			event.SetEndAt(r.Until)
			event.SetSummary(text.OneLine(what))
			if r.Reason != "" {
				event.SetDescription(text.OneLine(r.Reason))
			}
		}
	}
	return c.Serialize(ics.WithNewLineWindows)
}
