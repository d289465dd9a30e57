package web

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/snapshot"
)

var ranges = []int{7, 30, 90} // days of a report, unless it has dates

const (
	defaultTop = 20
	maxTop     = 1000
)

type request struct {
	Days         int    // 0: by dates
	Since, Until string // dates; up to the midnight that starts the last one
	Top          int
	query        usage.Query
}

func choices(hidden bool) []string {
	// on many systems groups have the names of users
	return slices.DeleteFunc(usage.Choices(), func(by string) bool { return hidden && by == usage.ByGroup })
}

var (
	errNames = errors.New("there are no reports by group here: the names of others are hidden, and groups often " +
		"have the same")
	errNone = errors.New("this controller keeps no usage database: genv remote enforce with a --state-dir does, " +
		"unless --usage-db is off")
)

func readReport(values url.Values, hidden bool, now time.Time) (a request, err error) {
	a = request{Days: ranges[0], Top: defaultTop, Since: values.Get("since"), Until: values.Get("until")}
	a.query.Days = true
	a.query.By = cmp.Or(values.Get("by"), usage.ByUser)
	if a.query.By == usage.ByGroup && hidden {
		return a, errNames
	}
	if !slices.Contains(choices(hidden), a.query.By) {
		return a, errors.New("by: write user, group, host, model or day")
	}
	if top := values.Get("top"); top != "" {
		if a.Top, err = strconv.Atoi(top); err != nil || a.Top < 1 || a.Top > maxTop {
			return a, fmt.Errorf("top: write a number from 1 to %d", maxTop)
		}
	}
	return a, a.readTime(values.Get("range"), now)
}

func (a *request) readTime(days string, now time.Time) error {
	const hour = int64(3600)
	switch {
	case days == "dates" || days == "" && a.Since != "":
		since, err := time.ParseInLocation(time.DateOnly, a.Since, time.Local)
		if err != nil {
			return errors.New("since: write a date, such as 2026-11-01")
		}
		until := now
		if a.Until != "" {
			if until, err = time.ParseInLocation(time.DateOnly, a.Until, time.Local); err != nil {
				return errors.New("until: write a date, such as 2026-12-01")
			}
		}
		if !since.Before(until) {
			return errors.New("since is not before until")
		}
		a.Days, a.query.Since, a.query.Until = 0, since.Unix(), min(until.Unix(), now.Unix()+hour)/hour*hour
		if until.Before(now) {
			a.query.Until = until.Unix()
		}
		return nil
	case days != "":
		n := slices.IndexFunc(ranges, func(n int) bool { return strconv.Itoa(n)+"d" == days })
		if n < 0 {
			return errors.New("range: write 7d, 30d, 90d or dates")
		}
		a.Days = ranges[n]
	}
	a.Since, a.Until = "", ""
	a.query.Until = (now.Unix() + hour - 1) / hour * hour
	a.query.Since = now.AddDate(0, 0, -a.Days).Unix() / hour * hour
	return nil
}

func (a *request) values() string {
	values := url.Values{"by": {a.query.By}, "top": {strconv.Itoa(a.Top)}, "range": {strconv.Itoa(a.Days) + "d"}}
	if a.Days == 0 {
		values["range"], values["since"], values["until"] = []string{"dates"}, []string{a.Since}, []string{a.Until}
	}
	return values.Encode()
}

func (s *server) report(r *http.Request, v *viewer) (a request, d *usage.Report, status int, err error) {
	if s.options.Usage == nil {
		return a, nil, http.StatusNotFound, errNone
	}
	hidden, now := s.options.Names != AllNames, s.options.Now()
	if a, err = readReport(r.URL.Query(), hidden, now); err != nil {
		return a, nil, http.StatusBadRequest, err
	}
	read, err := s.options.Usage.Report(r.Context(), a.query)
	status = http.StatusNotFound
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = errors.New("no usage is recorded yet: the first is, about a minute after the controller has started")
	case errors.Is(err, usage.ErrNoGroups):
	case errors.Is(err, usage.ErrBusy), errors.Is(err, context.Canceled):
		status = http.StatusServiceUnavailable
		err = errors.New("the usage database is busy: try again in a minute, or ask for a shorter time")
	case err != nil:
		if s.options.Failed != nil {
			s.options.Failed(fmt.Errorf("the usage database: %w", err))
		}
		status = http.StatusInternalServerError
		err = errors.New("the usage database can't be read: the controller's log says why")
	}
	if err != nil {
		return a, nil, status, err
	}
	shown := *read // others share it
	d = &shown
	d.Rows = slices.Clone(d.Rows)
	if hidden && d.By == usage.ByUser {
		d.HideUsers(string(v.self))
	}
	d.Top(a.Top)
	if d.Until.After(now) {
		d.Until = now.Truncate(time.Second) // the current hour counts as far as known
	}
	return a, d, http.StatusOK, nil
}

const hoursTimeout = 2 * time.Second // a user's page waits this long for the usage database

// hours is a user's usage in the last days; nil if there is none or it is unreadable, which reports say.
func (s *server) hours(ctx context.Context, user snapshot.Username) *usage.ReportRow {
	if s.options.Usage == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, hoursTimeout)
	defer cancel()
	lately, _ := readReport(nil, false, s.options.Now()) // never fails
	lately.query.Days = false
	d, err := s.options.Usage.Report(ctx, lately.query)
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(d.Rows, func(r usage.ReportRow) bool { return r.Key == string(user) })
	if i < 0 {
		return nil
	}
	return &d.Rows[i]
}

func sentence(err error) string {
	first, size := utf8.DecodeRuneInString(err.Error())
	return string(unicode.ToUpper(first)) + err.Error()[size:] + "."
}

func (s *server) reportPage(w http.ResponseWriter, r *http.Request) {
	type reportBody struct {
		*usage.Report
		Chart  *chart // nil if nothing is recorded
		Asked  request
		Choose []string
		Ranges []int
		Latest string // date
	}
	a, d, status, err := s.report(r, s.view(r))
	if err != nil {
		if status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "60")
		}
		s.refuse(w, r, status, sentence(err))
		return
	}
	s.servePage(w, r, a.values(), func(p *page, _ *http.Request) (string, any) {
		p.Title, p.Query = "GPU usage by "+d.By, template.URL(a.values()) //nolint:gosec // Values.Encode has escaped it
		return "report", reportBody{
			Report: d, Chart: newChart(d), Asked: a,
			Choose: choices(p.Hidden), Ranges: ranges, Latest: p.Now.Local().Format(time.DateOnly),
		}
	})
}

func (s *server) reportDocument(w http.ResponseWriter, r *http.Request) {
	_, d, status, err := s.report(r, s.view(r))
	if err != nil {
		http.Error(w, sentence(err), status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(d) // the client may be gone
}
