package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// ForgetCommand is `genv remote history forget`.
func ForgetCommand(with command.Program) *cli.Command {
	p := &program{with}
	return &cli.Command{
		Name:  "forget",
		Usage: "remove what is kept about a user: from the usage database, and from the log of `enforce --audit-log`",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "user", Aliases: []string{"u"}, Usage: "the `USER`"},
			&cli.BoolFlag{Name: "dry-run", Usage: "only say how much it is"},
			&cli.StringFlag{Name: "audit-log", Category: command.Site + command.Top + command.Shared, Usage: "the log `FILE` ($GENV_AUDIT_LOG)"},
			&cli.StringFlag{Name: "state-dir", Category: command.Site + command.Shared + command.Unless("STATE_DIRECTORY"), DefaultText: "that of the service, or one's own", Usage: "the `DIR` of the controller"},
			&cli.StringFlag{Name: "usage-db", Category: command.Site + command.Shared, DefaultText: "the file in --state-dir", Usage: "the `URL` of the PostgreSQL database to which controllers write"},
			&cli.StringFlag{Name: "usage-fleet", Category: command.Site + command.Shared, DefaultText: "the only one there", Usage: "the `NAME` of the fleet in that database"},
		},
		Action: p.forget,
	}
}

// forgetting is a user who is forgotten.
type forgetting struct {
	*program
	user   string
	dryRun bool
	log    string // "off" for none
}

func (p *program) forget(c *cli.Context) error {
	f := &forgetting{program: p, user: c.String("user"), dryRun: c.Bool("dry-run"), log: cmp.Or(c.String("audit-log"), p.Getenv("GENV_AUDIT_LOG"))}
	if !usage.IsNamed(f.user) {
		return command.UsageError("--user %q: name the user who is to be forgotten", text.Printable(f.user))
	}
	if f.log == "" {
		return command.UsageError("--audit-log FILE is missing: the log of `genv remote enforce`, which also notes that a user was forgotten; write off if there is none")
	}
	at := placeOf(c)
	s, names, err := f.openUsage(c.Context, &at)
	if err != nil {
		return err
	}
	if s != nil {
		defer s.Close()
	}
	found, err := f.count(c.Context, s, names)
	if err != nil {
		return err
	}
	if found == 0 {
		if s != nil && !f.dryRun { // a run that was killed may have left the name, without rows
			if err := s.Forget(c.Context, names...); err != nil {
				return fmt.Errorf("the usage database: %w; run this again", err)
			}
		}
		return command.UsageError("nothing is kept about %s there", text.Printable(f.user))
	}
	if f.dryRun {
		return nil
	}
	return f.change(c.Context, s, names, found)
}

// openUsage opens the usage database, with the names of the user in it; a nil one if there is none.
func (f *forgetting) openUsage(ctx context.Context, at *place) (s *store.Store, names []string, err error) {
	if at.url == off {
		f.say("usage database: off, so none is changed")
		return nil, nil, nil
	}
	s, dirs, err := f.openToForget(ctx, at)
	if err != nil {
		return nil, nil, err
	}
	if names, err = f.names(dirs, store.IsServer(at.url)); err != nil {
		_ = s.Close() // nothing was written
		return nil, nil, err
	}
	return s, names, nil
}

// count says how much is kept about the user, and returns how many rows and records that is.
func (f *forgetting) count(ctx context.Context, s *store.Store, names []string) (found int64, err error) {
	if s != nil {
		if found, err = s.RowsOf(ctx, names...); err != nil {
			return 0, fmt.Errorf("the usage database: %w", err)
		}
		f.say("usage database: %d rows %s %s", found, choose(f.dryRun, "would go to", "go to"), usage.Forgotten)
	}
	if f.log == off {
		f.say("log: off, so none is changed, and this isn't recorded")
		return found, nil
	}
	if err := audit.Check(f.log); err != nil {
		return 0, command.UsageError("the log: %w", err)
	}
	records, err := audit.Forget(f.log, snapshot.Username(f.user), true)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, command.UsageError("the log: %w; name the log of `genv remote enforce --audit-log FILE`", err)
	}
	if err != nil {
		return 0, fmt.Errorf("the log: %w", err)
	}
	f.say("log: %d records %s", records.Records, choose(f.dryRun, "would be removed", "are removed"))
	if records.Mentioned > 0 {
		f.say("log: %d records about other users or hosts mention the name, and stay", records.Mentioned)
	}
	return found + int64(records.Records), nil
}

// change forgets the user. The log notes it first: if this ends early, it is run again.
func (f *forgetting) change(ctx context.Context, s *store.Store, names []string, found int64) error {
	if f.log != off {
		log := audit.Log{Path: f.log}
		err := log.Append(audit.Record{
			Time: f.Now(), Kind: audit.KindOperator, Action: "forget", By: cmp.Or(f.Getenv("SUDO_USER"), f.Getenv("USER"), fmt.Sprintf("uid %d", os.Getuid())),
			Text: fmt.Sprintf("forgot a user: %d rows and records", found),
		})
		if err != nil {
			return fmt.Errorf("the log: %w; nothing was forgotten", err)
		}
	}
	if s != nil {
		if err := s.Forget(ctx, names...); err != nil {
			return fmt.Errorf("the usage database: %w; run this again", err)
		}
	}
	if f.log != off {
		if _, err := audit.Forget(f.log, snapshot.Username(f.user), false); err != nil {
			return fmt.Errorf("the log: %w; run this again", err)
		}
	}
	return nil
}

func choose(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

func (f *forgetting) say(format string, args ...any) {
	_, _ = fmt.Fprintf(f.Out, format+"\n", args...) // without a reader it is done nevertheless
}

// names are those under which the user may be kept: the name itself and, if there is a key in one of the folders, the pseudonym.
func (f *forgetting) names(dirs []string, onServer bool) ([]string, error) {
	for _, dir := range dirs {
		pseudonym, err := pseudonymOf(f.user, dir)
		if err != nil {
			return nil, err
		}
		if pseudonym != "" {
			return []string{f.user, pseudonym}, nil
		}
	}
	if onServer {
		f.say("pseudonyms: without %s only rows under the name itself are found; if users have pseudonyms, --state-dir DIR names its folder", keyFile)
	}
	return []string{f.user}, nil
}

// openToForget opens a database that is there already, and says in which folders the key of its pseudonyms
// may be.
func (f *forgetting) openToForget(ctx context.Context, at *place) (s *store.Store, dirs []string, err error) {
	path, err := f.file(at)
	if err != nil {
		return nil, nil, err
	}
	found, err := f.openToRead(ctx, at)
	if err != nil {
		return nil, nil, err
	}
	_ = found.Close() // nothing was written
	switch {
	case path != "":
		dirs = []string{filepath.Dir(path)}
	case at.stateDir != "":
		dirs = []string{at.stateDir}
	default:
		dirs = enforcement.ControllerDirs(f.Getenv)
	}
	s, err = store.Open(ctx, cmp.Or(path, at.url), store.Options{Fleet: found.Fleet(), In: time.Local})
	if err != nil {
		return nil, nil, fmt.Errorf("the usage database: %w", err)
	}
	return s, dirs, nil
}
