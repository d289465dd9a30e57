package usage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ReaderOptions are what a Reader needs.
type ReaderOptions struct {
	// Open opens the store to read it. It is called for each report that isn't kept.
	Open func() (Store, error)
	Now  func() time.Time
	// Groups are the groups of users; nil where reports by group aren't possible.
	Groups Groups
}

// ReadTimeout is how long a report may take, waiting included: enough for a year of 1,000 hosts on a slow disk.
const ReadTimeout = 15 * time.Second

const (
	freshFor   = time.Minute // as often as the recorder writes
	maxReports = 32          // that are kept
)

// Errors of a Reader.
var (
	// ErrBusy says that a report took too long: try again later.
	ErrBusy = errors.New("the usage database is busy")
	// ErrNoGroups says that there are no reports by group.
	ErrNoGroups = errors.New("there are no reports by group here")
)

// Groups are the groups of users.
type Groups func(ctx context.Context, users []string) func(user string) []string

// Reader reads reports. It is safe for concurrent use.
type Reader struct {
	options ReaderOptions
	reading chan struct{} // has room for the one who reads

	mu   sync.Mutex
	kept map[Query]kept
}

type kept struct {
	at time.Time
	*Report
}

// NewReader returns a Reader, which opens nothing yet.
func NewReader(options ReaderOptions) *Reader {
	return &Reader{options: options, reading: make(chan struct{}, 1), kept: make(map[Query]kept)}
}

// Report is a report, which is at most a minute old. Several viewers may have the same one: it must not be changed.
// Besides those above, errors are those of the store.
func (r *Reader) Report(ctx context.Context, q Query) (*Report, error) {
	if found, ok := r.known(q); ok {
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
	if found, ok := r.known(q); ok { // somebody else asked for it meanwhile
		return found, nil
	}
	found, err := r.read(ctx, q)
	if err != nil {
		if errors.Is(context.Cause(ctx), ErrBusy) {
			err = ErrBusy
		}
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.kept) >= maxReports {
		clear(r.kept)
	}
	r.kept[q] = kept{r.options.Now(), found}
	return found, nil
}

func (r *Reader) known(q Query) (*Report, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, ok := r.kept[q]
	age := r.options.Now().Sub(found.at)
	return found.Report, ok && age >= 0 && age < freshFor
}

func (r *Reader) read(ctx context.Context, q Query) (*Report, error) {
	switch {
	case !slices.Contains(Choices(), q.By):
		return nil, fmt.Errorf("there are no reports by %q", q.By)
	case q.By == ByGroup && r.options.Groups == nil:
		return nil, ErrNoGroups
	}
	s, err := r.options.Open()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return Read(ctx, s, q, r.options.Groups)
}

// Read reads a report from a store. ByGroup needs groups.
func Read(ctx context.Context, s Store, q Query, groups Groups) (*Report, error) {
	d, err := s.Report(ctx, q)
	if err == nil && q.By == ByGroup {
		d.Groups(groups(ctx, d.Keys()))
	}
	return d, err
}
