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
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// UsageFlags is what the flags say about whether a controller keeps who used what.
type UsageFlags struct {
	url     string        // of a server; on for a file
	names   time.Duration // 0 for as long as the usage
	options store.Options

	now func() time.Time
	log zerolog.Logger
}

// Flags are the flags.
func (o *UsageFlags) Flags() []cli.Flag {
	o.url, o.options.KeepDays = on, store.DefaultKeepDays
	return []cli.Flag{
		command.String(&o.url, "usage-db", "keep who used which GPU, for genv remote report: `on`, in --state-dir; "+
			"on a PostgreSQL server, such as postgres://genv@db.lab/genv; or off").Config(command.Shared),
		command.String(&o.options.Fleet, "usage-fleet", "the `NAME` of this fleet on a PostgreSQL server").
			Config(command.Shared).DefaultText("the key of --leader, or this machine's name").Hide(),
		command.Duration(&o.options.KeepDays, "usage-keep", "for this `TIME`, such as 90d").Config(command.Site).Hide(),
		command.Duration(&o.names, "usage-names",
			"keep the names of users for this `TIME`, such as 90d; then replace them by pseudonyms").
			Config(command.Site).DefaultText("as long as the usage").Hide(),
	}
}

const (
	on  = "on"
	off = "off"
)

// minKeep is the shortest time for which usage is kept: less is no use.
const minKeep = 24 * time.Hour

// Read returns what opens the usage database in the folder of a controller, or on a server; nil for none. leader is
// the key of the controllers' election; empty for none.
func (o *UsageFlags) Read(
	p *command.Program, leader string, log zerolog.Logger,
) (func(string) (*usage.Recorder, func(func() map[string][]string) *usage.Reader), error) {
	if o.options.KeepDays < minKeep {
		return nil, command.WrongFlag("usage-keep", " %s: write a day or more, such as 90d, or --usage-db off",
			text.FormatDuration(o.options.KeepDays))
	}
	if o.names > 0 && o.names < minKeep {
		return nil, command.WrongFlag("usage-names", " %s: write a day or more, such as 90d",
			text.FormatDuration(o.names))
	}
	if o.url == off {
		return nil, nil //nolint:nilnil // none is asked for
	}
	o.now, o.log, o.options.In = p.Now, log, time.Local
	o.options.KeepHours = min(o.options.KeepDays, store.DefaultKeepHours)
	if err := o.readPlace(leader); err != nil {
		return nil, err
	}
	return o.keep, nil
}

// readPlace checks where usage is kept, and of which fleet it is there.
func (o *UsageFlags) readPlace(leader string) (err error) {
	switch {
	case o.url == on && o.options.Fleet != "":
		return command.WrongFlag("usage-fleet", " is for --usage-db postgres://…")
	case o.url == on:
		return nil
	case !store.IsServer(o.url):
		return command.WrongFlag("usage-db", " %q: write on, off, or the URL of a PostgreSQL database such as "+
			"postgres://genv@db.lab/genv", text.Printable(o.url))
	}
	if err := store.CheckURL(o.url); err != nil {
		return command.WrongFlag("usage-db", ": %w", err)
	}
	if o.options.Fleet = cmp.Or(o.options.Fleet, strings.Trim(leader, "/")); o.options.Fleet == "" {
		o.options.Fleet, err = os.Hostname()
	}
	return err
}

// keep keeps usage of a controller with a folder, and reads it.
func (o *UsageFlags) keep(dir string) (*usage.Recorder, func(func() map[string][]string) *usage.Reader) {
	place, shared := o.url, o.url != on
	recorder := &usage.Recorder{Now: o.now, In: time.Local, Log: o.log, Shared: shared}
	if !shared {
		place = filepath.Join(dir, store.FileName)
		recorder.Replace = func(why error) error { return setDamagedApart(place, why, o.now(), o.log) }
	}
	recorder.Open = func() (s usage.Store, err error) {
		to := o.options
		if to.Pseudonyms, err = pseudonyms(dir, o.names); err != nil {
			return nil, err
		}
		return o.open(place, to)
	}
	read := func() (usage.Store, error) { return store.OpenToRead(context.Background(), place, o.options) }
	recorder.Start()
	return recorder, func(groups func() map[string][]string) *usage.Reader {
		return usage.NewReader(read, o.now, func(ctx context.Context, users []string) func(string) []string {
			return groupsOf(ctx, groups(), users)
		})
	}
}

// open opens a database. A file that is damaged gets another name.
func (o *UsageFlags) open(place string, options store.Options) (usage.Store, error) {
	s, err := store.Open(context.Background(), place, options)
	if errors.Is(err, usage.ErrDamaged) {
		if err := setDamagedApart(place, err, o.now(), o.log); err != nil {
			return nil, err
		}
		s, err = store.Open(context.Background(), place, options)
	}
	if err != nil && !store.IsServer(place) {
		err = fmt.Errorf("%s: %w", place, err)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func setDamagedApart(path string, why error, now time.Time, log zerolog.Logger) error {
	damaged := path + ".damaged-" + now.Format("20060102-150405")
	if err := os.Rename(path, damaged); err != nil {
		return errors.Join(why, err)
	}
	for _, with := range []string{"-wal", "-shm"} {
		_ = os.Rename(path+with, damaged+with) // there may be none
	}
	log.Error().Err(why).Msgf("the usage database can't be read: it was moved to %s, and a new one begins", damaged)
	return nil
}
