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
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// UsageFlags say whether a controller keeps who used what.
func UsageFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "usage-db", Category: command.Site + command.Shared, Value: on, Usage: "keep who used which GPU, for genv remote report: `on`, in --state-dir; on a PostgreSQL server, such as postgres://genv@db.lab/genv; or off"},
		&cli.StringFlag{Name: "usage-fleet", Category: command.Site + command.Shared, Hidden: true, DefaultText: "the key of --leader, or this machine's name", Usage: "the `NAME` of this fleet on a PostgreSQL server"},
		command.Lasting(&cli.StringFlag{Name: "usage-keep", Category: command.Site, Hidden: true, Value: text.FormatDuration(store.DefaultKeepDays), Usage: "for this `TIME`, such as 90d"}),
		command.Lasting(&cli.StringFlag{Name: "usage-names", Category: command.Site, Hidden: true, DefaultText: "as long as the usage", Usage: "keep the names of users for this `TIME`, such as 90d; then replace them by pseudonyms"}),
	}
}

const (
	on  = "on"
	off = "off"
)

// minKeep is the shortest time for which usage is kept: less is no use.
const minKeep = 24 * time.Hour

// ReadUsage reads UsageFlags. What it returns opens the usage database in the folder of a controller, or on a
// server; it is nil for none. leader is the key of the controllers' election; empty for none.
func ReadUsage(c *cli.Context, p *command.Program, leader string, log zerolog.Logger) (func(dir string) *enforcement.Usage, error) {
	keepFor := command.Duration(c, "usage-keep")
	if keepFor < minKeep {
		return nil, command.UsageError("--usage-keep %s: write a day or more, such as 90d, or --usage-db off", c.String("usage-keep"))
	}
	namesFor, err := readNames(c)
	if err != nil {
		return nil, err
	}
	if c.String("usage-db") == off {
		return nil, nil //nolint:nilnil // none is asked for
	}
	k := &usageKeeper{program: p, log: log, url: c.String("usage-db"), names: namesFor, options: store.Options{In: time.Local, KeepDays: keepFor, KeepHours: min(keepFor, store.DefaultKeepHours)}}
	if err := k.readPlace(c, leader); err != nil {
		return nil, err
	}
	return k.keep, nil
}

// usageKeeper keeps usage as flags say.
type usageKeeper struct {
	program *command.Program
	log     zerolog.Logger
	url     string // of a server; on for a file
	names   time.Duration
	options store.Options
}

// readPlace checks where usage is kept, and of which fleet it is there.
func (k *usageKeeper) readPlace(c *cli.Context, leader string) (err error) {
	k.options.Fleet = c.String("usage-fleet")
	switch {
	case k.url == on && k.options.Fleet != "":
		return command.UsageError("--usage-fleet is for --usage-db postgres://…")
	case k.url == on:
		return nil
	case !store.IsServer(k.url):
		return command.UsageError("--usage-db %q: write on, off, or the URL of a PostgreSQL database such as postgres://genv@db.lab/genv", text.Printable(k.url))
	}
	if err := store.CheckURL(k.url); err != nil {
		return command.UsageError("--usage-db: %w", err)
	}
	if k.options.Fleet = cmp.Or(k.options.Fleet, strings.Trim(leader, "/")); k.options.Fleet == "" {
		k.options.Fleet, err = os.Hostname()
	}
	return err
}

// keep keeps usage of a controller with a folder, and reads it.
func (k *usageKeeper) keep(dir string) *enforcement.Usage {
	place, shared := k.url, k.url != on
	options := usage.RecorderOptions{Now: k.program.Now, In: time.Local, Log: k.log, Shared: shared}
	if !shared {
		place = filepath.Join(dir, store.FileName)
		options.Replace = func(why error) error { return moveAside(place, why, k.program.Now(), k.log) }
	}
	options.Open = func() (s usage.Store, err error) {
		to := k.options
		if to.Pseudonyms, err = pseudonyms(dir, k.names); err != nil {
			return nil, err
		}
		return k.open(place, to)
	}
	read := func() (usage.Store, error) { return store.OpenToRead(context.Background(), place, k.options) }
	return &enforcement.Usage{
		Recorder: usage.StartRecorder(options),
		Reader:   func(groups func() map[string][]string) *usage.Reader { return k.reader(read, groups) },
	}
}

// open opens a database. A file that is damaged is moved aside.
func (k *usageKeeper) open(place string, options store.Options) (usage.Store, error) {
	s, err := store.Open(context.Background(), place, options)
	if errors.Is(err, usage.ErrDamaged) {
		if err := moveAside(place, err, k.program.Now(), k.log); err != nil {
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

// reader reads usage for viewers. groups are the users of the policy's groups.
func (k *usageKeeper) reader(open func() (usage.Store, error), groups func() map[string][]string) *usage.Reader {
	return usage.NewReader(usage.ReaderOptions{
		Open: open, Now: k.program.Now, In: time.Local,
		Groups: func(ctx context.Context, users []string) func(string) []string { return groupsOf(ctx, groups(), users) },
	})
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
	log.Error().Err(why).Msgf("the usage database can't be read: it was moved to %s, and a new one begins", aside)
	return nil
}
