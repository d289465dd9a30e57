package report

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/policycheck"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// UsageFlags are the flags about recording usage.
type UsageFlags struct {
	URL     string        // a server's, or "on" for a file, or "off"
	names   time.Duration // 0 for as long as the usage
	options store.Options

	now func() time.Time
	log zerolog.Logger
}

// Flags returns the flags.
func (o *UsageFlags) Flags() []cli.Flag {
	o.URL, o.options.KeepDays = on, store.DefaultKeepDays
	return []cli.Flag{
		command.String(&o.URL, "usage-db", "keep who used which GPU, for genv remote report: `on`, in --state-dir; "+
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

	minKeep = 24 * time.Hour // less is of no use
)

// Read returns a function that opens the usage database in the controller's folder, or on a server; nil for none.
// leader is the key of the election; empty for none.
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
	if o.URL == off {
		return nil, nil //nolint:nilnil // off
	}
	o.now, o.log, o.options.In = p.Now, log, time.Local
	o.options.KeepHours = min(o.options.KeepDays, store.DefaultKeepHours)
	if err := o.readPlace(leader); err != nil {
		return nil, err
	}
	return o.keep, nil
}

// Fleet is the name of the fleet on a server, after Read.
func (o *UsageFlags) Fleet() string { return o.options.Fleet }

func (o *UsageFlags) readPlace(leader string) (err error) {
	switch {
	case o.URL == on && o.options.Fleet != "":
		return command.WrongFlag("usage-fleet", " is for --usage-db postgres://…")
	case o.URL == on:
		return nil
	case !store.IsServer(o.URL):
		return command.WrongFlag("usage-db", " %q: write on, off, or the URL of a PostgreSQL database such as "+
			"postgres://genv@db.lab/genv", text.Printable(o.URL))
	}
	if err := store.CheckURL(o.URL); err != nil {
		return command.WrongFlag("usage-db", ": %w", err)
	}
	if o.options.Fleet = cmp.Or(o.options.Fleet, strings.Trim(leader, "/")); o.options.Fleet == "" {
		o.options.Fleet, err = os.Hostname()
	}
	return err
}

func (o *UsageFlags) keep(dir string) (*usage.Recorder, func(func() map[string][]string) *usage.Reader) {
	place, shared := o.URL, o.URL != on
	recorder := &usage.Recorder{Now: o.now, In: time.Local, Log: o.log, Shared: shared}
	if !shared {
		place = filepath.Join(dir, store.FileName)
		recorder.Replace = func(why error) error { return store.SetDamagedApart(place, why, o.now(), o.log) }
	}
	recorder.Open = func() (_ usage.Store, err error) {
		to := o.options
		to.PseudonymsAfter = o.names
		if to.Pseudonym, err = pseudonyms(dir, o.names); err != nil {
			return nil, err
		}
		s, err := store.Open(context.Background(), place, to)
		if err != nil && !shared {
			err = fmt.Errorf("%s: %w", place, err)
		}
		return s, err
	}
	read := func() (usage.Store, error) { return store.OpenToRead(context.Background(), place, o.options) }
	recorder.Start()
	return recorder, func(groups func() map[string][]string) *usage.Reader {
		return usage.NewReader(read, o.now, func(ctx context.Context, users []string) func(string) []string {
			return groupsOf(ctx, groups(), users)
		})
	}
}

const getentTimeout = 10 * time.Second // for the accounts of users

func policyFile(path string) (*policy.File, error) {
	if path == "" || path == command.NoPolicy {
		return policy.Default(), nil
	}
	return policycheck.ReadPolicy(path)
}

// groupsOf takes the given groups, or else the account's primary group on this machine.
func groupsOf(ctx context.Context, groups map[string][]string, users []string) func(user string) []string {
	of := make(map[string][]string)
	for group, members := range groups {
		for _, user := range members {
			of[user] = append(of[user], group)
		}
	}
	var others []string
	for _, user := range users {
		if len(of[user]) == 0 && usage.IsNamed(user) && !strings.ContainsAny(user, " ()") {
			others = append(others, user)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, getentTimeout)
	defer cancel()
	for user, group := range primaryGroups(ctx, nss.Getent, others) {
		of[user] = []string{group}
	}
	return func(user string) []string {
		if groups := of[user]; len(groups) > 0 {
			return groups
		}
		return []string{"(no group)"}
	}
}

func primaryGroups(ctx context.Context, getent policycheck.Getent, users []string) map[string]string {
	found := make(map[string]string)
	for part := range slices.Chunk(users, 200) {
		accounts, _ := getent(ctx, "passwd", part...) // it fails if one is unknown
		gids := make(map[string]string)
		for _, account := range nss.ParseAccounts(accounts) {
			gids[account.Name] = fmt.Sprint(account.GID)
		}
		if len(gids) == 0 {
			continue
		}
		names := make(map[string]string)
		groups, _ := getent(ctx, "group", slices.Compact(slices.Sorted(maps.Values(gids)))...)
		for line := range strings.Lines(string(groups)) {
			if fields := strings.Split(line, ":"); len(fields) > 2 {
				names[fields[2]] = fields[0]
			}
		}
		for user, gid := range gids {
			if names[gid] != "" {
				found[user] = names[gid]
			}
		}
	}
	return found
}

// keyFile has the key of pseudonyms, in a controller's folder. The same key gives the same pseudonyms, and whoever has
// it can find out names.
const (
	keyFile = "pseudonyms.key"
	keySize = 32 // bytes
)

// pseudonyms replaces names of users after a time; nil for 0. dir is the folder of the loop's memory.
func pseudonyms(dir string, after time.Duration) (func(user string) string, error) {
	if after == 0 {
		return nil, nil
	}
	key, err := ensureKey(dir)
	if err != nil {
		return nil, fmt.Errorf("the key of pseudonyms: %w", err)
	}
	return func(user string) string { return usage.Pseudonym(key, user) }, nil
}

// ensureKey reads a folder's key, and creates it if missing. The key is synced to disk before it is used.
func ensureKey(dir string) ([]byte, error) {
	opened, err := folder.OpenExisting(dir)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	file, err := opened.Lock(keyFile, 10*time.Second) // another process may be creating it
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && info.Size() == 0 {
		key := make([]byte, keySize)
		_, _ = rand.Read(key) // never fails
		_, err = file.Write(key)
		err = errors.Join(err, file.Sync(), opened.Sync())
	}
	if err != nil {
		return nil, err
	}
	return readKey(opened)
}

func readKey(f *folder.Folder) ([]byte, error) {
	key, status, err := f.Read(keyFile, 1<<20)
	switch path := f.Join(keyFile); {
	case err != nil:
		return nil, err
	case status.Mode&0o077 != 0:
		return nil, fmt.Errorf("other users can read it: chmod 600 %s", path)
	case len(key) != keySize:
		return nil, fmt.Errorf("%s has %d bytes, not %d: copy it again from where it was made, or remove it, and "+
			"users get other pseudonyms", path, len(key), keySize)
	}
	return key, nil
}
