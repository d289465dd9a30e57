package report

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/enforce/fairshare"
	"github.com/seed-3119e985/genv/remote/usage/reading"
	"github.com/seed-3119e985/genv/remote/usage/recorder"
	"github.com/seed-3119e985/genv/remote/usage/sqlite"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// HistoryFlags say whether a controller keeps who used what.
func HistoryFlags() []cli.Flag {
	return []cli.Flag{
		command.OneOf(&cli.StringFlag{Name: "history", Value: on, Usage: "`on` or off: keep who used which GPU, in --state-dir, for genv remote report"}, []string{on, off}),
		&cli.StringFlag{Name: "history-keep", Value: text.FormatDuration(store.DefaultKeepDays), Usage: "for this `TIME`, such as 90d"},
	}
}

const (
	on  = "on"
	off = "off"
)

// minKeep is the shortest time for which usage is kept: less is no history.
const minKeep = 24 * time.Hour

// ReadHistory reads HistoryFlags. What it returns opens the history in the folder of a
// controller; it is nil for none.
func ReadHistory(c *cli.Context, p *command.Program, log zerolog.Logger) (func(dir string) enforcement.History, error) {
	keep, err := command.PositiveDuration(c, "history-keep")
	if err != nil {
		return nil, err
	}
	if keep < minKeep {
		return nil, command.UsageError("--history-keep %s: write a day or more, such as 90d, or --history off", c.String("history-keep"))
	}
	switch c.String("history") {
	case on:
	case off:
		return nil, nil //nolint:nilnil // none is asked for
	default:
		return nil, command.UsageError("--history %q: write on or off", c.String("history"))
	}
	return func(dir string) enforcement.History {
		path := filepath.Join(dir, sqlite.FileName)
		record := recorder.Start(recorder.Options{Now: p.Now, In: time.Local, Log: log, Open: func() (store.Store, error) { return open(path, keep, p.Now(), log) }})
		read := func() (store.Store, error) { return sqlite.OpenToRead(path, time.Local) }
		return history{record, p.Now, read, reading.NewRecent(reading.New(reading.Options{Open: read, Now: p.Now, In: time.Local}))}
	}, nil
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
func open(path string, keep time.Duration, now time.Time, log zerolog.Logger) (store.Store, error) {
	options := sqlite.Options{In: time.Local, KeepDays: keep, KeepHours: min(keep, store.DefaultKeepHours)}
	s, err := sqlite.Open(path, options)
	if errors.Is(err, store.ErrDamaged) {
		aside := path + ".damaged-" + now.Format("20060102-150405")
		if moveErr := os.Rename(path, aside); moveErr != nil {
			return nil, errors.Join(err, moveErr)
		}
		for _, with := range []string{"-wal", "-shm"} {
			_ = os.Rename(path+with, aside+with) // there may be none
		}
		log.Error().Err(err).Msgf("the usage history can't be read: it was moved to %s, and a new one begins", aside)
		s, err = sqlite.Open(path, options)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}
