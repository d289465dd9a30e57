package history

import (
	"errors"
	"io/fs"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/snapshot"
)

// ControllerFlags select from the log of a controller.
func ControllerFlags() []cli.Flag {
	return append(Flags(),
		&cli.StringFlag{Name: "audit-log", Category: command.Site + command.Top + command.Shared + command.Unless("GENV_AUDIT_LOG"), Usage: "the log `FILE` ($GENV_AUDIT_LOG)"},
		&cli.StringSliceFlag{Name: "host", Aliases: []string{"H"}, Usage: "only actions on this `HOST`"},
		&cli.BoolFlag{Name: "stats", Usage: "print how many warnings, actions, exemptions and failures there were, by user and rule"},
	)
}

// ShowController prints what a query finds in the log of a controller, and connects to no host.
func ShowController(p *command.Program, c *cli.Context) error {
	path := c.String("audit-log")
	if path == "" {
		path = p.Getenv("GENV_AUDIT_LOG")
	}
	if path == "" || path == "off" {
		return command.UsageError("missing --audit-log FILE, or GENV_AUDIT_LOG: name the log of `genv remote enforce --audit-log FILE`")
	}
	switch _, err := os.Stat(path); { // an empty answer would say that nothing was done
	case errors.Is(err, fs.ErrNotExist):
		return command.UsageError("the log: %w; if no controller has run yet, start it, otherwise name the log of `genv remote enforce --audit-log FILE`", err)
	case errors.Is(err, fs.ErrPermission):
		return command.UsageError("the log: %w; run this as root (sudo) or as the controller's account", err)
	case err != nil:
		return command.UsageError("the log: %w; name the log of `genv remote enforce --audit-log FILE`", err)
	}
	hosts := command.AllGiven(c, "host")
	if len(hosts) > 1 {
		return command.UsageError("--host: name one host, or none for all")
	}
	q := audit.Filter{}
	if len(hosts) == 1 {
		q.Host = snapshot.Hostname(hosts[0])
	}
	return Show(p, c, path, q)
}
