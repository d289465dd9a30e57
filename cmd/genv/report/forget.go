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
	"github.com/seed-3119e985/genv/remote/recording"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/postgres"
	"github.com/seed-3119e985/genv/remote/usage/sqlite"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// ForgetCommand is `genv remote history forget`.
func ForgetCommand(with command.Program) *cli.Command {
	p := &program{with}
	return &cli.Command{
		Name:  "forget",
		Usage: "remove what is kept about a user: from the usage history, and from the log of `enforce --audit-log`",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "user", Aliases: []string{"u"}, Usage: "the `USER`"},
			&cli.BoolFlag{Name: "dry-run", Usage: "only say how much it is"},
			&cli.StringFlag{Name: "audit-log", Usage: "the log `FILE` ($GENV_AUDIT_LOG)"},
			&cli.StringFlag{Name: "state-dir", DefaultText: "that of the service, or one's own", Usage: "the `DIR` of the controller"},
			&cli.StringFlag{Name: "history", DefaultText: "the file in --state-dir", Usage: "the `URL` of the PostgreSQL database to which controllers write"},
			&cli.StringFlag{Name: "history-fleet", DefaultText: "the only one there", Usage: "the `NAME` of the fleet in that database"},
		},
		Action: p.forget,
	}
}

// forgetting is a user who is forgotten.
type forgetting struct {
	*program
	user   string
	dryRun bool
	found  int64
}

func (p *program) forget(c *cli.Context) error {
	f := &forgetting{program: p, user: c.String("user"), dryRun: c.Bool("dry-run")}
	if !usage.IsNamed(f.user) {
		return command.UsageError("--user %q: name the user who is to be forgotten", text.Printable(f.user))
	}
	r := &request{stateDir: c.String("state-dir"), url: c.String("history"), fleet: c.String("history-fleet")}
	if err := f.usage(c.Context, r); err != nil {
		return err
	}
	if err := f.record(cmp.Or(c.String("audit-log"), p.Getenv("GENV_AUDIT_LOG"))); err != nil {
		return err
	}
	if f.found == 0 {
		return command.UsageError("nothing is kept about %s there", text.Printable(f.user))
	}
	return nil
}

// usage forgets the user in the usage history, the sums of which stay.
func (f *forgetting) usage(ctx context.Context, r *request) error {
	if r.url == off {
		f.say("usage history: off, so none is changed")
		return nil
	}
	s, dirs, err := f.openToForget(ctx, r)
	if err != nil {
		return err
	}
	defer s.Close()
	names, err := f.names(dirs, postgres.Is(r.url))
	if err != nil {
		return err
	}
	rows, err := s.RowsOf(ctx, names...)
	if err == nil && !f.dryRun && rows > 0 {
		err = s.Forget(ctx, names...)
	}
	if err != nil {
		return fmt.Errorf("the usage history: %w; run this again", err)
	}
	f.found += rows
	f.say("usage history: %d rows %s %s", rows, choose(f.dryRun, "would go to", "went to"), usage.Forgotten)
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

// forgetter is a database that forgets.
type forgetter interface {
	store.Store
	store.Forgetter
}

// names are those under which the user may be kept: the own one, and the pseudonym of a key in the folders of controllers.
func (f *forgetting) names(dirs []string, onServer bool) ([]string, error) {
	for _, dir := range dirs {
		pseudonym, err := pseudonymOf(f.user, keyDir(dir))
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

// openToForget opens the database, and says in which folders the key of its pseudonyms may be.
func (f *forgetting) openToForget(ctx context.Context, r *request) (s forgetter, dirs []string, err error) {
	inFile, err := r.inFile()
	if err != nil {
		return nil, nil, err
	}
	if !inFile {
		dirs = enforcement.ControllerDirs(f.Getenv)
		if r.stateDir != "" {
			dirs = []string{r.stateDir}
		}
		s, err = openServerToForget(ctx, r)
		return s, dirs, err
	}
	path, err := f.find(r.stateDir)
	if err != nil {
		return nil, nil, err
	}
	dir := filepath.Dir(path)
	if folder := filepath.Join(dir, recording.FolderName); exists(folder) {
		f.say("recording: %s isn't changed: remove its files, or wait until they are as old as --record-keep", folder)
	}
	s, err = sqlite.Open(path, sqlite.Options{In: time.Local})
	return s, []string{dir}, err
}

// openServerToForget opens the database of a fleet that is there already.
func openServerToForget(ctx context.Context, r *request) (forgetter, error) {
	found, err := openServer(ctx, r)
	if err != nil {
		return nil, err
	}
	_ = found.Close() // nothing was written
	s, err := postgres.Open(ctx, r.url, postgres.Options{Fleet: found.Fleet(), In: time.Local})
	if err != nil {
		return nil, fmt.Errorf("the usage history: %w", err)
	}
	return s, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// record forgets the user in the log of a controller, and notes there that a user was
// forgotten.
func (f *forgetting) record(path string) error {
	if path == "" || path == "off" {
		f.say("log: none was named, so none is changed: --audit-log FILE names it")
		return nil
	}
	found, err := audit.Forget(path, snapshot.Username(f.user), f.dryRun)
	if errors.Is(err, fs.ErrNotExist) {
		return command.UsageError("the log: %w; name the log of `genv remote enforce --audit-log FILE`", err)
	}
	if err != nil {
		return fmt.Errorf("the log: %w; run this again", err)
	}
	f.found += int64(found.Records)
	f.say("log: %d records %s", found.Records, choose(f.dryRun, "would be removed", "were removed"))
	if found.Mentioned > 0 {
		f.say("log: %d records about other users or hosts mention the name, and stay", found.Mentioned)
	}
	if f.dryRun || f.found == 0 {
		return nil
	}
	log := audit.Log{Path: path}
	return log.Append(audit.Record{
		Time: f.Now(), Kind: audit.KindOperator, Action: "forget", By: cmp.Or(f.Getenv("SUDO_USER"), f.Getenv("USER")),
		Text: fmt.Sprintf("forgot a user: %d rows and records", f.found),
	})
}
