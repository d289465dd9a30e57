package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote/usage"
)

// ReaderOptions are what a Reader needs.
type ReaderOptions struct {
	// Open opens the store to read it. It is called for each report that isn't kept.
	Open func() (usage.Store, error)
	Now  func() time.Time
	In   *time.Location // of days
	// Groups are the groups of users; nil where reports by group aren't possible.
	Groups func(ctx context.Context, users []string) (func(user string) []string, error)
	// Timeout is how long a report may take, waiting included; 0 for DefaultTimeout.
	Timeout time.Duration
}

// DefaultTimeout is enough for a year of 1,000 hosts on a slow disk.
const DefaultTimeout = 15 * time.Second

const (
	freshFor   = time.Minute // as often as the recorder writes
	maxReports = 32          // that are kept
)

// Errors of a Reader.
var (
	// ErrBusy says that a report took too long: try again later.
	ErrBusy = errors.New("the usage history is busy")
	// ErrNoGroups says that there are no reports by group.
	ErrNoGroups = errors.New("there are no reports by group here")
)

// Query is what a report is about.
type Query struct {
	By           string // ByUser and others
	Since, Until int64  // in seconds since 1970
}

// Reports are a report and the same time by day. Several viewers may have the same ones: they
// must not be changed.
type Reports struct {
	*Document
	Days *Document // nil if Document is that itself
}

// Reader reads reports. It is safe for concurrent use.
type Reader struct {
	options ReaderOptions
	reading chan struct{} // has room for the one who reads

	mu   sync.Mutex
	kept map[Query]kept
}

type kept struct {
	at time.Time
	Reports
}

// NewReader returns a Reader, which opens nothing yet.
func NewReader(options ReaderOptions) *Reader {
	options.Timeout = cmp.Or(options.Timeout, DefaultTimeout)
	return &Reader{options: options, reading: make(chan struct{}, 1), kept: make(map[Query]kept)}
}

// Report is a report, which is at most a minute old. Besides those above, errors are those of
// the store.
func (r *Reader) Report(ctx context.Context, q Query) (Reports, error) {
	if found, ok := r.known(q); ok {
		return found, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.options.Timeout, ErrBusy)
	defer cancel()
	select {
	case r.reading <- struct{}{}:
	case <-ctx.Done():
		return Reports{}, context.Cause(ctx)
	}
	defer func() { <-r.reading }()
	if ctx.Err() != nil { // both were ready
		return Reports{}, context.Cause(ctx)
	}
	if found, ok := r.known(q); ok { // somebody else asked for it meanwhile
		return found, nil
	}
	found, err := r.read(ctx, q)
	if err != nil {
		if errors.Is(context.Cause(ctx), ErrBusy) {
			err = ErrBusy
		}
		return Reports{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.kept) >= maxReports {
		clear(r.kept)
	}
	r.kept[q] = kept{r.options.Now(), found}
	return found, nil
}

func (r *Reader) known(q Query) (Reports, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, ok := r.kept[q]
	age := r.options.Now().Sub(found.at)
	return found.Reports, ok && age >= 0 && age < freshFor
}

// read reads a report and its days.
func (r *Reader) read(ctx context.Context, q Query) (Reports, error) {
	query, err := queryOf(q)
	if err != nil {
		return Reports{}, err
	}
	if q.By == ByGroup && r.options.Groups == nil {
		return Reports{}, ErrNoGroups
	}
	s, err := r.options.Open()
	if err != nil {
		return Reports{}, err
	}
	defer s.Close()
	d, err := r.document(ctx, s, &q, query)
	if err != nil || q.By == ByDay {
		return Reports{Document: d}, err
	}
	query.Kind, query.ByDay = usage.OfAll, true
	days, err := s.Report(ctx, query)
	if err != nil {
		return Reports{}, err
	}
	return Reports{d, New(&days, ByDay, r.options.In)}, nil
}

func (r *Reader) document(ctx context.Context, s usage.Store, q *Query, query usage.Query) (*Document, error) {
	sums, err := s.Report(ctx, query)
	if err != nil {
		return nil, err
	}
	if q.By != ByGroup {
		return New(&sums, q.By, r.options.In), nil
	}
	d := New(&sums, ByUser, r.options.In)
	groups, err := r.options.Groups(ctx, d.Keys())
	if err != nil {
		return nil, err
	}
	d.Groups(groups)
	return d, nil
}

// queryOf is a query as stores take it.
func queryOf(q Query) (usage.Query, error) {
	query := usage.Query{Since: q.Since, Until: q.Until}
	switch q.By {
	case ByUser, ByGroup:
		query.Kind = usage.ByUser
	case ByHost:
		query.Kind = usage.ByHost
	case ByModel:
		query.Kind = usage.ByModel
	case ByDay:
		query.Kind, query.ByDay = usage.OfAll, true
	default:
		return query, fmt.Errorf("there are no reports by %q", q.By)
	}
	return query, nil
}
