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
	url, fleet    string
	keepFor, name time.Duration
}

// Flags are the flags.
func (o *UsageFlags) Flags() []cli.Flag {
	o.url, o.keepFor = on, store.DefaultKeepDays
	return []cli.Flag{
		command.String(&o.url, "usage-db", "keep who used which GPU, for genv remote report: `on`, in --state-dir; "+
			"on a PostgreSQL server, such as postgres://genv@db.lab/genv; or off").Config(command.Shared),
		command.String(&o.fleet, "usage-fleet", "the `NAME` of this fleet on a PostgreSQL server").
			Config(command.Shared).DefaultText("the key of --leader, or this machine's name").Hide(),
		command.Duration(&o.keepFor, "usage-keep", "for this `TIME`, such as 90d").Config(command.Site).Hide(),
		command.Duration(&o.name, "usage-names",
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
	if o.keepFor < minKeep {
		return nil, command.WrongFlag("usage-keep", " %s: write a day or more, such as 90d, or --usage-db off",
			text.FormatDuration(o.keepFor))
	}
	if o.name > 0 && o.name < minKeep {
		return nil, command.WrongFlag("usage-names", " %s: write a day or more, such as 90d",
			text.FormatDuration(o.name))
	}
	if o.url == off {
		return nil, nil //nolint:nilnil // none is asked for
	}
	k := &usageKeeper{program: p, log: log, url: o.url, names: o.name, options: store.Options{
		In: time.Local, KeepDays: o.keepFor, KeepHours: min(o.keepFor, store.DefaultKeepHours), Fleet: o.fleet,
	}}
	if err := k.readPlace(leader); err != nil {
		return nil, err
	}
	return k.keep, nil
}

// usageKeeper keeps usage as flags say.
type usageKeeper struct {
	program *command.Program
	log     zerolog.Logger
	url     string        // of a server; on for a file
	names   time.Duration // 0 for as long as the usage
	options store.Options
}

// readPlace checks where usage is kept, and of which fleet it is there.
func (k *usageKeeper) readPlace(leader string) (err error) {
	switch {
	case k.url == on && k.options.Fleet != "":
		return command.WrongFlag("usage-fleet", " is for --usage-db postgres://…")
	case k.url == on:
		return nil
	case !store.IsServer(k.url):
		return command.WrongFlag("usage-db", " %q: write on, off, or the URL of a PostgreSQL database such as "+
			"postgres://genv@db.lab/genv", text.Printable(k.url))
	}
	if err := store.CheckURL(k.url); err != nil {
		return command.WrongFlag("usage-db", ": %w", err)
	}
	if k.options.Fleet = cmp.Or(k.options.Fleet, strings.Trim(leader, "/")); k.options.Fleet == "" {
		k.options.Fleet, err = os.Hostname()
	}
	return err
}

// keep keeps usage of a controller with a folder, and reads it.
func (k *usageKeeper) keep(dir string) (*usage.Recorder, func(func() map[string][]string) *usage.Reader) {
	place, shared := k.url, k.url != on
	options := usage.RecorderOptions{Now: k.program.Now, In: time.Local, Log: k.log, Shared: shared}
	if !shared {
		place = filepath.Join(dir, store.FileName)
		options.Replace = func(why error) error { return setDamagedApart(place, why, k.program.Now(), k.log) }
	}
	options.Open = func() (s usage.Store, err error) {
		to := k.options
		if to.Pseudonyms, err = pseudonyms(dir, k.names); err != nil {
			return nil, err
		}
		return k.open(place, to)
	}
	read := func() (usage.Store, error) { return store.OpenToRead(context.Background(), place, k.options) }
	return usage.StartRecorder(options), func(groups func() map[string][]string) *usage.Reader {
		return usage.NewReader(usage.ReaderOptions{
			Open: read, Now: k.program.Now, In: time.Local,
			Groups: func(ctx context.Context, users []string) func(string) []string {
				return groupsOf(ctx, groups(), users)
			},
		})
	}
}

// open opens a database. A file that is damaged gets another name.
func (k *usageKeeper) open(place string, options store.Options) (usage.Store, error) {
	s, err := store.Open(context.Background(), place, options)
	if errors.Is(err, usage.ErrDamaged) {
		if err := setDamagedApart(place, err, k.program.Now(), k.log); err != nil {
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

// setDamagedApart gives a damaged database another name.
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
