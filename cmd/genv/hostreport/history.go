package hostreport

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/enforce/fairshare"
	"github.com/seed-3119e985/genv/remote/usage/files"
	"github.com/seed-3119e985/genv/remote/usage/reading"
	"github.com/seed-3119e985/genv/remote/usage/recorder"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/system"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// HistoryFlags say whether `genv enforce` keeps who used what.
func HistoryFlags() []cli.Flag {
	return []cli.Flag{
		command.OneOf(&cli.StringFlag{Name: "history", Value: on, Usage: "`on` or off: keep who used which GPU of this machine, for genv report"}, []string{on, off}),
		&cli.StringFlag{Name: "history-keep", Value: text.FormatDuration(files.DefaultKeepDays), Usage: "for this `TIME`, such as 90d"},
	}
}

const (
	on  = "on"
	off = "off"
)

// minKeep is the shortest time for which usage is kept: less is no history.
const minKeep = 24 * time.Hour

// folderOf is where the usage of this host is.
func folderOf(getenv func(string) string) string { return filepath.Join(disk.RootDir(getenv), "usage") }

// ReadHistory reads HistoryFlags. What it returns opens the history of this host; it is nil for
// none, as without root, who alone sees the processes of all.
func ReadHistory(c *cli.Context, p *command.Program, log zerolog.Logger) (func(dir string) enforcement.History, error) {
	keep, err := command.PositiveDuration(c, "history-keep")
	if err != nil {
		return nil, err
	}
	if keep < minKeep {
		return nil, command.UsageError("--history-keep %s: write a day or more, such as 90d, or --history off", c.String("history-keep"))
	}
	switch given := c.String("history"); {
	case given != on && given != off:
		return nil, command.UsageError("--history %q: write on or off", given)
	case given == off, os.Geteuid() != 0, p.SharedAccount:
		return nil, nil //nolint:nilnil // none is asked for, or possible
	}
	return func(string) enforcement.History {
		path, uids := folderOf(p.Getenv), &accounts{now: p.Now}
		options := files.Options{In: time.Local, KeepDays: keep, KeepHours: min(keep, files.DefaultKeepHours), UID: uids.of}
		return history{
			recorder.Start(recorder.Options{Now: p.Now, In: time.Local, Log: log, Open: func() (store.Store, error) { return files.Open(path, options) }}),
			reading.NewRecent(reading.New(reading.Options{Now: p.Now, In: time.Local, Open: func() (store.Store, error) { return files.OpenToRead(path, time.Local) }})),
		}
	}, nil
}

// history is what is kept, and what the rules need to know of it.
type history struct {
	*recorder.Recorder
	recent *reading.Recent
}

// Usage implements enforcement.History.
func (h history) Usage() fairshare.Usage { return h.recent.Usage() }

// Close implements enforcement.History.
func (h history) Close() {
	h.recent.Close()
	h.Recorder.Close()
}

// accounts know the uids of users. They are asked for in the background, once an hour each.
type accounts struct {
	now func() time.Time

	mu    sync.Mutex
	begun time.Time
	known map[string]uint32 // noAccount for a name without one
}

const (
	noAccount     = ^uint32(0)
	accountsFor   = time.Hour
	getentTimeout = 10 * time.Second
)

// of is the uid of a user, as usage names it: by the account, or "uid 1004" without one.
func (a *accounts) of(user string) (uint32, bool) {
	if number, found := strings.CutPrefix(user, "uid "); found {
		uid, err := strconv.ParseUint(number, 10, 32)
		return uint32(uid), err == nil && uint32(uid) != noAccount
	}
	if strings.ContainsAny(user, " ():\n") {
		return 0, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if age := a.now().Sub(a.begun); a.known == nil || age >= accountsFor || age < 0 {
		a.begun, a.known = a.now(), make(map[string]uint32)
	}
	uid, found := a.known[user]
	if !found {
		uid = lookUp(user)
		a.known[user] = uid
	}
	return uid, uid != noAccount
}

func lookUp(user string) uint32 {
	ctx, cancel := context.WithTimeout(context.Background(), getentTimeout)
	defer cancel()
	line, err := system.Getent(ctx, "passwd", user)
	fields := strings.Split(string(line), ":")
	if err != nil || len(fields) < 3 || fields[0] != user {
		return noAccount
	}
	uid, err := strconv.ParseUint(fields[2], 10, 32)
	if err != nil {
		return noAccount
	}
	return uint32(uid)
}
