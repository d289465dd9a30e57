package usage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// ReportSchema is that of a Report.
const ReportSchema = "genv.remote.report/1"

// What a row of a Report is about.
const (
	ByUser  = "user"
	ByGroup = "group"
	ByHost  = "host"
	ByModel = "model"
	ByDay   = "day"
)

// Choices lists what rows can be.
func Choices() []string { return []string{ByUser, ByGroup, ByHost, ByModel, ByDay} }

// Report is the JSON of `genv remote report`; docs/json.md describes it.
type Report struct {
	Schema   string      `json:"schema"`
	By       string      `json:"by"`
	Since    time.Time   `json:"since"` // rounded to hours, or days where only these are kept
	Until    time.Time   `json:"until"`
	Begun    time.Time   `json:"begun"`                   // usage is kept since then
	Recorded time.Time   `json:"recorded_until"`          // and up to then
	Missing  int64       `json:"missing_seconds"`         // without data
	Rows     []ReportRow `json:"rows"`                    // the longest attached time first; days by date
	Total    ReportRow   `json:"total"`                   // each GPU once
	LeftOut  int         `json:"rows_left_out,omitempty"` // by --top
	Days     Days        `json:"-"`                       // of all rows

	read time.Time // by a Reader
}

// ReportRow is a user, a group, a host, a model or a day.
type ReportRow struct {
	Key string `json:"key"` // empty: unknown; by host, the fleet
	Amounts
	Share float64 `json:"share"`                  // of the attached time of all rows, 0 to 1
	Peak  *int64  `json:"peak_devices,omitempty"` // at a time; missing for groups
}

// Shown is the text for a key of the report.
func Shown(by, key string) string {
	switch {
	case key != "":
		return key
	case by == ByHost:
		return "(fleet)" // findings of caps are about all hosts
	}
	return "(unknown)"
}

// Arrange sorts the rows by attached time (days by date) and sets their shares. Rows that are days also become Days.
func (d *Report) Arrange() {
	all := int64(0)
	if d.By == ByDay {
		d.Days = make(Days)
	}
	for i := range d.Rows {
		all += d.Rows[i].Attached
		if d.By == ByDay {
			d.Days.Add(AllGPUs, d.Rows[i].Key, &d.Rows[i].Amounts)
		}
	}
	for i := range d.Rows {
		d.Rows[i].Share = float64(d.Rows[i].Attached) / float64(max(all, 1))
	}
	d.Total.Share = float64(min(all, 1))
	slices.SortFunc(d.Rows, func(a, b ReportRow) int {
		if d.By == ByDay {
			return cmp.Compare(a.Key, b.Key)
		}
		return cmp.Or(cmp.Compare(b.Attached, a.Attached), cmp.Compare(b.Used, a.Used),
			cmp.Compare(b.Unknown, a.Unknown), cmp.Compare(a.Key, b.Key))
	})
}

// Groups joins users into groups. A user counts in each group, so the sum may exceed the total.
func (d *Report) Groups(of func(user string) []string) {
	sums := make(map[string]*ReportRow)
	for i := range d.Rows {
		for _, group := range of(d.Rows[i].Key) {
			if sums[group] == nil {
				sums[group] = &ReportRow{Key: group}
			}
			sums[group].Add(&d.Rows[i].Amounts) // not Peak: members may peak at different times
		}
	}
	d.By, d.Rows, d.Days = ByGroup, []ReportRow{}, d.Days.regrouped(of)
	for _, sum := range sums {
		d.Rows = append(d.Rows, *sum)
	}
	d.Arrange()
}

// OtherUsers is the key of all users with hidden names.
const OtherUsers = "(other users)"

// HideUsers joins the rows of all users except one; of all for an empty name.
func (d *Report) HideUsers(but string) {
	others, rows := ReportRow{Key: OtherUsers}, []ReportRow{}
	for i := range d.Rows {
		if r := &d.Rows[i]; but != "" && r.Key == but {
			rows = append(rows, *r)
		} else {
			others.Add(&r.Amounts)
			others.Share += r.Share
		}
	}
	if len(rows) < len(d.Rows) {
		rows = append(rows, others)
	}
	d.Rows, d.LeftOut = rows, 0
	d.Days = d.Days.regrouped(func(user string) []string {
		if but == "" || user != but {
			user = OtherUsers
		}
		return []string{user}
	})
}

// Top keeps the first n rows, or the last n days. 0 keeps all.
func (d *Report) Top(n int) {
	if n <= 0 || len(d.Rows) <= n {
		return
	}
	d.LeftOut = len(d.Rows) - n
	if d.By == ByDay {
		d.Rows = d.Rows[d.LeftOut:]
	} else {
		d.Rows = d.Rows[:n]
	}
}

// Keys returns the keys of the rows.
func (d *Report) Keys() (keys []string) {
	for i := range d.Rows {
		keys = append(keys, d.Rows[i].Key)
	}
	return keys
}

// Hours has one decimal place.
func Hours(seconds int64) string { return fmt.Sprintf("%.1f", float64(seconds)/3600) }

// ShortTime uses fitting units.
func ShortTime(seconds int64) string { return text.ShortDuration(time.Duration(seconds) * time.Second) }

// Percent formats a share.
func Percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

// ReadTimeout includes waiting: enough for a year of 1,000 hosts on a slow disk.
const ReadTimeout = 15 * time.Second

const (
	freshFor   = time.Minute // the recorder's interval
	maxReports = 32          // kept at most
)

var (
	// ErrBusy means that a report took too long: try again later.
	ErrBusy = errors.New("the usage database is busy")
	// ErrNoGroups means that reports by group are not available.
	ErrNoGroups = errors.New("there are no reports by group here")
)

// Groups returns the groups of each user.
type Groups func(ctx context.Context, users []string) func(user string) []string

// Reader reads reports. It is safe for concurrent use.
type Reader struct {
	open    func() (Store, error)
	now     func() time.Time
	groups  Groups
	reading chan struct{} // one at a time

	mu   sync.Mutex
	kept map[Query]*Report
}

// NewReader returns a Reader, which opens the store for each report that isn't cached. groups may be nil.
func NewReader(open func() (Store, error), now func() time.Time, groups Groups) *Reader {
	return &Reader{open: open, now: now, groups: groups, reading: make(chan struct{}, 1), kept: make(map[Query]*Report)}
}

// Report returns a report at most a minute old. Other viewers share it: don't change it.
func (r *Reader) Report(ctx context.Context, q Query) (*Report, error) {
	if found := r.known(q); found != nil {
		return found, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, ReadTimeout, ErrBusy)
	defer cancel()
	select {
	case r.reading <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-r.reading }()
	if ctx.Err() != nil { // both were ready
		return nil, context.Cause(ctx)
	}
	if found := r.known(q); found != nil { // another viewer just read it
		return found, nil
	}
	found, err := r.read(ctx, q)
	if err != nil && errors.Is(context.Cause(ctx), ErrBusy) {
		err = ErrBusy
	}
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.kept) >= maxReports {
		clear(r.kept)
	}
	found.read = r.now()
	r.kept[q] = found
	return found, nil
}

func (r *Reader) known(q Query) *Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	if found := r.kept[q]; found != nil {
		if age := r.now().Sub(found.read); age >= 0 && age < freshFor {
			return found
		}
	}
	return nil
}

func (r *Reader) read(ctx context.Context, q Query) (*Report, error) {
	switch {
	case !slices.Contains(Choices(), q.By):
		return nil, fmt.Errorf("there are no reports by %q", q.By)
	case q.By == ByGroup && r.groups == nil:
		return nil, ErrNoGroups
	}
	s, err := r.open()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return Read(ctx, s, q, r.groups)
}

// Read reads a report. ByGroup needs groups.
func Read(ctx context.Context, s Store, q Query, groups Groups) (*Report, error) {
	d, err := s.Report(ctx, q)
	if err == nil && q.By == ByGroup {
		d.Groups(groups(ctx, d.Keys()))
	}
	return d, err
}
