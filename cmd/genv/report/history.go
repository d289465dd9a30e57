package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/enforce/fairshare"
	"github.com/seed-3119e985/genv/remote/usage/postgres"
	"github.com/seed-3119e985/genv/remote/usage/reading"
	"github.com/seed-3119e985/genv/remote/usage/recorder"
	"github.com/seed-3119e985/genv/remote/usage/sqlite"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// HistoryFlags say whether a controller keeps who used what.
func HistoryFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "history", Value: on, Usage: "keep who used which GPU, for genv remote report: `on`, in --state-dir; on a PostgreSQL server, such as postgres://genv@db.lab/genv; or off"},
		&cli.StringFlag{Name: "history-fleet", DefaultText: "the key of --leader, or this machine's name", Usage: "the `NAME` of this fleet on a PostgreSQL server"},
		&cli.StringFlag{Name: "history-keep", Value: text.FormatDuration(store.DefaultKeepDays), Usage: "for this `TIME`, such as 90d"},
		&cli.StringFlag{Name: "history-names", DefaultText: "as long as the usage", Usage: "keep the names of users for this `TIME`, such as 90d; then replace them by pseudonyms"},
	}
}

const (
	on  = "on"
	off = "off"
)

// minKeep is the shortest time for which usage is kept: less is no history.
const minKeep = 24 * time.Hour

// ReadHistory reads HistoryFlags. What it returns opens the history in the folder of a
// controller; it is nil for none. leader is the key of the controllers' election; empty for none.
func ReadHistory(c *cli.Context, p *command.Program, leader string, log zerolog.Logger) (func(dir string) enforcement.History, error) {
	keepFor, err := command.PositiveDuration(c, "history-keep")
	if err != nil {
		return nil, err
	}
	if keepFor < minKeep {
		return nil, command.UsageError("--history-keep %s: write a day or more, such as 90d, or --history off", c.String("history-keep"))
	}
	namesFor, err := readNames(c)
	if err != nil {
		return nil, err
	}
	url := c.String("history")
	switch {
	case url == off:
		return nil, nil //nolint:nilnil // none is asked for
	case url != on && !postgres.Is(url):
		return nil, command.UsageError("--history %q: write on, off, or the URL of a PostgreSQL database such as postgres://genv@db.lab/genv", text.Printable(url))
	case url == on && c.String("history-fleet") != "":
		return nil, command.UsageError("--history-fleet is for --history postgres://…")
	case url == on:
		return func(dir string) enforcement.History {
			path := filepath.Join(dir, sqlite.FileName)
			options := sqlite.Options{In: time.Local, KeepDays: keepFor, KeepHours: min(keepFor, store.DefaultKeepHours)}
			return keep(p, log, false, func() (s store.Store, err error) {
				if options.Pseudonyms, err = pseudonyms(dir, namesFor); err != nil {
					return nil, err
				}
				return open(path, options, p.Now(), log)
			}, func(why error) error { return moveAside(path, why, p.Now(), log) },
				func() (store.Store, error) { return sqlite.OpenToRead(path, time.Local) })
		}, nil
	}
	options, err := serverOptions(c, leader)
	if err != nil {
		return nil, err
	}
	options.KeepDays, options.KeepHours = keepFor, min(keepFor, store.DefaultKeepHours)
	return func(dir string) enforcement.History {
		return keep(p, log, true, func() (s store.Store, err error) {
			to := options
			if to.Pseudonyms, err = pseudonyms(dir, namesFor); err != nil {
				return nil, err
			}
			return postgres.Open(context.Background(), url, to)
		}, nil, func() (store.Store, error) { return postgres.OpenToRead(context.Background(), url, options) })
	}, nil
}

// serverOptions are those of the fleet on a server.
func serverOptions(c *cli.Context, leader string) (postgres.Options, error) {
	if err := postgres.Check(c.String("history")); err != nil {
		return postgres.Options{}, command.UsageError("--history: %w", err)
	}
	o := postgres.Options{Fleet: cmp.Or(c.String("history-fleet"), strings.Trim(leader, "/")), In: time.Local}
	var err error
	if o.Fleet == "" {
		o.Fleet, err = os.Hostname()
	}
	return o, err
}

// keep keeps usage in a store, and reads it. replace moves a damaged one aside; nil for none.
func keep(p *command.Program, log zerolog.Logger, shared bool, open func() (store.Store, error), replace func(error) error, read func() (store.Store, error)) enforcement.History {
	record := recorder.Start(recorder.Options{Now: p.Now, In: time.Local, Log: log, Shared: shared, Open: open, Replace: replace})
	return history{record, p.Now, read, reading.NewRecent(reading.New(reading.Options{Open: read, Now: p.Now, In: time.Local}))}
}

// history is what a controller keeps, and how it is read.
type history struct {
	*recorder.Recorder
	now    func() time.Time
	read   func() (store.Store, error)
	recent *reading.Recent
}

// Reader reads it for viewers. groups are the users of the policy's groups.
func (h history) Reader(groups func() map[string][]string) *reading.Reader {
	return reading.New(reading.Options{Open: h.read, Now: h.now, In: time.Local, Groups: func(ctx context.Context, users []string) (func(string) []string, error) {
		return groupsOf(ctx, groups(), users), nil
	}})
}

// Usage implements enforcement.History.
func (h history) Usage() fairshare.Usage { return h.recent.Usage() }

// Close implements enforcement.History.
func (h history) Close() {
	h.recent.Close()
	h.Recorder.Close()
}

// open opens a database. One that is damaged is moved aside.
func open(path string, options sqlite.Options, now time.Time, log zerolog.Logger) (store.Store, error) {
	s, err := sqlite.Open(path, options)
	if errors.Is(err, store.ErrDamaged) {
		if err := moveAside(path, err, now, log); err != nil {
			return nil, err
		}
		s, err = sqlite.Open(path, options)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// moveAside gives a damaged database another name.
func moveAside(path string, why error, now time.Time, log zerolog.Logger) error {
	aside := path + ".damaged-" + now.Format("20060102-150405")
	if err := os.Rename(path, aside); err != nil {
		return errors.Join(why, err)
	}
	for _, with := range []string{"-wal", "-shm"} {
		_ = os.Rename(path+with, aside+with) // there may be none
	}
	log.Error().Err(why).Msgf("the usage history can't be read: it was moved to %s, and a new one begins", aside)
	return nil
}
