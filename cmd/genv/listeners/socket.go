package listeners

import (
	"context"
	"net/http"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/live/socket"
)

// Socket is the unix socket for the live view and for programs.
type Socket struct {
	Path string // absolute; empty for none
	// Required says that somebody asked for it. One that is opened by default and can't
	// be is a warning.
	Required bool
}

func socketFlags() []cli.Flag {
	return []cli.Flag{&cli.StringFlag{
		Name: "socket", Category: command.Site + command.Loop + command.Top + command.OrOff + command.Unless(socket.Variable), DefaultText: "/run/genv-controller/" + socket.Name + ", or below $XDG_RUNTIME_DIR",
		Usage: "serve the live state on this unix socket (`PATH`, or off); $" + socket.Variable,
	}}
}

func readSocket(c *cli.Context, getenv func(string) string, once bool) (Socket, error) {
	path, given := c.String("socket"), command.IsGiven(c, "socket")
	switch {
	case given && path == "":
		return Socket{}, command.UsageError("--socket: write a path, or off")
	case !given && command.Bool(c, "dry-run"): // it runs alongside a controller, which has that socket
		return Socket{}, nil
	case !given:
		path = getenv(socket.Variable)
	}
	switch {
	case path == socket.Off:
		return Socket{}, nil
	case once && given:
		return Socket{}, needsLoop("socket")
	case once:
		return Socket{}, nil
	case path == "":
		return Socket{Path: socket.DefaultPath(getenv, os.Geteuid())}, nil
	}
	path, err := filepath.Abs(path)
	return Socket{path, true}, err
}

func (l *Listeners) openSocket(ctx context.Context, config Socket) error {
	if config.Path == "" {
		return nil
	}
	listener, err := socket.Listen(ctx, config.Path)
	switch {
	case err != nil && config.Required:
		return command.UsageError("--socket: %w", err)
	case err != nil:
		l.log.Warn().Err(err).Msg("the live state is not served; --socket PATH chooses another socket, --socket off none")
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("/", live.NewHandler(l.shown.Feed))
	l.mountMetrics(mux, false)
	if l.shown.Actions != nil {
		mux.Handle("POST /api/v1/actions", l.shown.Actions)
	}
	l.serve(listener, mux, config.Path)
	return nil
}
