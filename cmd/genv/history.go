package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/snapshot"
)

// historyFlags select from a log.
func historyFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "user", Usage: "only actions on this `USER`, by name or uid"},
		&cli.IntFlag{Name: "pid", DefaultText: "any", Usage: "only actions on process `PID`"},
		&cli.StringFlag{Name: "since", Usage: "only what is not older: `TIME`, such as 2h, 7d or 2026-11-20T22:00"},
		formatFlag(),
		&cli.BoolFlag{Name: "no-header", Usage: "leave out the names of the columns"},
	}
}

func (p *program) remoteHistoryCommand() *cli.Command {
	return &cli.Command{
		Name:  "history",
		Usage: "say what was done to whom, when and why, from the log of `enforce --audit-log`",
		Flags: append(historyFlags(),
			&cli.StringFlag{Name: "audit-log", Usage: "the log `FILE` ($GENV_AUDIT_LOG)"},
			&cli.StringSliceFlag{Name: "host", Aliases: []string{"H"}, Usage: "only what was done on this `HOST`"},
		),
		Action: p.remoteHistory,
	}
}

// remoteHistory reads the controller's log. It connects to nobody.
func (p *program) remoteHistory(c *cli.Context) error {
	path := c.String("audit-log")
	if path == "" {
		path = p.getenv("GENV_AUDIT_LOG")
	}
	if path == "" || path == "off" {
		return usage("name the log that `genv remote enforce --audit-log FILE` keeps: --audit-log FILE, or GENV_AUDIT_LOG")
	}
	if _, err := os.Stat(path); err != nil { // an empty answer would say that nothing was done
		return usage("the log: %w; name the one that `genv remote enforce --audit-log FILE` keeps", err)
	}
	hosts := allGiven(c, "host")
	if len(hosts) > 1 {
		return usage("--host: name one host, or none for all")
	}
	q := audit.Query{}
	if len(hosts) == 1 {
		q.Host = snapshot.Hostname(hosts[0])
	}
	return p.history(c, path, q)
}

func (p *program) historyCommand() *cli.Command {
	return &cli.Command{
		Name:   "history",
		Usage:  "say what was done to your processes and devices on this machine, when and why",
		Flags:  historyFlags(),
		Action: p.historyHere,
	}
}

// historyHere reads this host's log: root the whole, everybody else their own.
func (p *program) historyHere(c *cli.Context) error {
	path := p.getenv("GENV_AUDIT_LOG")
	if path == "" || path == "off" {
		path = defaultHostLog
	}
	if os.Geteuid() != 0 {
		path = audit.UserLog(path, snapshot.UID(os.Getuid()))
	}
	return p.history(c, path, audit.Query{})
}

func (p *program) history(c *cli.Context, path string, q audit.Query) error {
	if err := refuseArguments(c); err != nil {
		return err
	}
	format, err := formatOf(c, "tui", "csv", "json")
	if err != nil {
		return err
	}
	if c.Int("pid") < 0 {
		return usage("--pid %d: write the number of a process", c.Int("pid"))
	}
	q.User, q.PID = snapshot.Username(c.String("user")), snapshot.PID(c.Int("pid"))
	if q.Since, err = p.sinceOf(c.String("since")); err != nil {
		return err
	}
	entries, damage, err := audit.History(path, q)
	if errors.Is(err, fs.ErrPermission) {
		return usage("%w: ask your administrator, who can run genv history --user %d as root", err, os.Getuid())
	}
	if err != nil {
		return err
	}
	if damage.Lines > 0 {
		fmt.Fprintf(p.err, "%s: %s cannot be read and are passed over, the first at %s\n", path, plural(damage.Lines, "line"), damage.First)
	}
	return p.writeHistory(format, entries, c.Bool("no-header"))
}

// historyDocument is the JSON of `history`.
type historyDocument struct {
	Schema  string        `json:"schema"`
	Entries []audit.Entry `json:"entries"`
}

func (p *program) writeHistory(format string, entries []audit.Entry, noHeader bool) error {
	if format == "json" {
		return writeJSON(p.out, historyDocument{Schema: "genv.history/1", Entries: entries})
	}
	t := &table{columns: []column{{"TIME", 21}, {"HOST", 12}, {"USER", 10}, {"WHAT", 24}, {"STATUS", 12}, {"WHY", 0}}, noHeader: noHeader}
	for i := range entries {
		e := &entries[i]
		t.add(e.Time.Local().Format(time.DateTime), string(e.Host), userOf(e), whatOf(e), string(e.Status), whyOf(e))
	}
	return t.write(p.out, format)
}

func userOf(e *audit.Entry) string {
	switch {
	case e.User != "":
		return string(e.User)
	case e.UID != nil:
		return fmt.Sprint(*e.UID)
	}
	return ""
}

func whatOf(e *audit.Entry) string {
	if e.Device != nil {
		return fmt.Sprintf("device %s of %s", e.Device, snapshot.Shown(string(e.EID)))
	}
	return fmt.Sprintf("process %d", e.PID)
}

func whyOf(e *audit.Entry) string {
	why := strings.Join(e.Why, "; ")
	if e.Reason != "" && e.Status != enforce.StatusTerminated {
		why += " (" + e.Reason + ")"
	}
	if !e.Told.IsZero() {
		why += " (told at " + e.Told.Local().Format(time.TimeOnly) + ")"
	}
	return strings.TrimSpace(why)
}
