// Package command has what the commands of genv share: the program's streams,
// clock and environment variables, its exit codes, and the reading of flags and
// arguments. What commands print is formatted by package render.
package command

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Program is what the commands see of the world outside.
type Program struct {
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
	Now      func() time.Time
	Version  string

	// SharedAccount means that one account plays several users on this host, as in
	// genv-demo: the names in envs.json are believed, and the owners of processes
	// are not reported. It is never set in genv itself.
	SharedAccount bool
}

// Warn prints warnings to stderr, one per line.
func (p *Program) Warn(warnings ...string) {
	for _, w := range warnings {
		fmt.Fprintln(p.Err, text.PrintableLines(w))
	}
}

// Logger writes to stderr: warnings, or all with --verbose.
func (p *Program) Logger(c *cli.Context) zerolog.Logger {
	level := zerolog.WarnLevel
	if Bool(c, "verbose") {
		level = zerolog.DebugLevel
	}
	out := zerolog.ConsoleWriter{Out: p.Err, NoColor: !render.Colourful(p.Err, p.Getenv), TimeFormat: render.TimeFormat}
	return zerolog.New(out).Level(level).With().Timestamp().Logger()
}

// OpenAtOnce opens a file or a pipe, such as that of <(…). It doesn't wait for a writer:
// a FIFO without one is empty.
func OpenAtOnce(path string) (io.ReadCloser, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
}
