// Package listeners serves the state of a controller: it has the flags of `genv remote enforce` and `genv remote watch`
// about that, and the listeners.
//
//	endpoints, err := flags.Read(c, getenv, once)
//	open, err := listeners.Open(ctx, endpoints, listeners.Content{Feed: feed}, log)
//	defer open.Close()
//
// serve bounds what clients can do. The flags are read once: a reload changes what is shown, not where.
package listeners

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/live/socket"
	"github.com/seed-3119e985/genv/remote/metrics"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/web"
)

// Endpoints are what the flags ask for. The zero value opens nothing.
type Endpoints struct {
	Socket  Socket
	Metrics netip.AddrPort // for Prometheus
	Web     Web
	Access  string // path of the file about access to TCP listeners; empty for none
}

// Flags are the flags of all listeners.
type Flags struct {
	socket, metrics, web, webConfig string
	names                           web.Names
	hosts                           []string
}

// Flags returns the flags.
func (o *Flags) Flags() []cli.Flag {
	o.names = web.AllNames
	return []cli.Flag{
		command.String(&o.socket, "socket", "serve the live state on this unix socket (`PATH`, or off); "+
			"$"+socket.Variable).Config(command.Loop | command.Top | command.OrOff).Unless(socket.Variable).
			DefaultText("/run/genv-controller/" + socket.Name + ", or below $XDG_RUNTIME_DIR"),
		command.String(&o.metrics, "metrics", "serve metrics for Prometheus on `ADDRESS`, such as 127.0.0.1:9400; "+
			":9400 is on all addresses of this machine").Config(command.Loop),
		command.String(&o.web, "web", "serve a web page on `ADDRESS`, such as 127.0.0.1:8080 or "+
			"unix:/run/genv-controller/web.sock").Config(command.Loop),
		command.String(&o.names, "web-names", "the users' `NAMES` that the web page shows: all, self (of who is "+
			"logged in) or none").OneOf("all", "self", "none").Config(command.Loop).Hide(),
		command.Strings(&o.hosts, "web-host", "a `NAME` by which browsers may ask for the web page, besides "+
			"localhost; repeatable").Config(command.Loop),
		command.String(&o.webConfig, "web-config", "TLS and passwords of --web and --metrics: a `FILE` of the format "+
			"of Prometheus' web.config.file; not for unix sockets").Config(command.Loop),
	}
}

// Read checks the flags. once is for a command that runs one cycle, with nothing to look at.
func (o *Flags) Read(c *cli.Context, getenv func(string) string, once bool) (Endpoints, error) {
	var config Endpoints
	var err error
	if config.Socket, err = o.readSocket(c, getenv, once); err != nil {
		return config, err
	}
	if c.IsSet("metrics") {
		if once {
			return config, needsLoop("metrics")
		}
		if config.Metrics, err = readAddress("metrics", o.metrics, "127.0.0.1:9400", ""); err != nil {
			return config, err
		}
	}
	if config.Web, err = o.readWeb(c, once); err != nil {
		return config, err
	}
	switch {
	case !c.IsSet("web-config"):
		return config, nil
	case o.webConfig == "":
		return config, command.WrongFlag("web-config", ": write the path of a file")
	case !config.Web.Address.IsValid() && !config.Metrics.IsValid():
		return config, command.WrongFlag("web-config",
			" needs --web or --metrics with an address; a unix socket has neither TLS nor passwords")
	}
	config.Access = o.webConfig
	return config, nil
}

func needsLoop(flag string) error {
	return command.WrongFlag(flag, " needs a loop: write an --interval of more than 0")
}

// Any reports whether anything is opened.
func (config Endpoints) Any() bool { return config.Socket.Path != "" || config.Asked() }

// Asked reports whether a flag or the environment asks for something.
func (config Endpoints) Asked() bool {
	return config.Socket.Required || config.Metrics.IsValid() || config.Web.asked()
}

// Content is what the listeners serve.
type Content struct {
	Feed    *live.Feed
	Metrics *metrics.Exporter // served by all listeners, and on a port of their own; nil for none
	Actions http.Handler      // POST /api/v1/actions, on the unix socket only; nil for none
	Usage   *usage.Reader     // nil for none
	// Recorded is what was ended before this run, and whether the list is complete; nil for no record.
	Recorded func() (list []audit.HistoryEntry, complete bool)
}

// Listeners are the open listeners.
type Listeners struct {
	Addresses []string // for people, in the order of the flags

	shown   Content
	access  *web.Access // to TCP listeners; nil for everybody
	log     zerolog.Logger
	closers []func()
}

// Open opens what config asks for: all or nothing.
func Open(ctx context.Context, config Endpoints, shown Content, log zerolog.Logger) (*Listeners, error) {
	l := &Listeners{shown: shown, log: log}
	for _, open := range []func() error{
		func() error { return l.openAccess(config.Access) },
		func() error { return l.openSocket(ctx, config.Socket) },
		func() error { return l.openMetrics(ctx, config.Metrics) },
		func() error { return l.openWeb(ctx, config.Web, config.Access) },
	} {
		if err := open(); err != nil {
			l.Close()
			return nil, err
		}
	}
	return l, nil
}

// Close closes all listeners, and ends open requests.
func (l *Listeners) Close() {
	for _, closer := range l.closers {
		closer()
	}
	l.closers = nil
}

// serve answers requests until Close. address is for people.
func (l *Listeners) serve(listener net.Listener, handler http.Handler, address string) {
	failed, stop := socket.Serve(listener, handler)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := <-failed; err != http.ErrServerClosed { //nolint:errorlint // Serve doesn't wrap it
			l.log.Error().Err(err).Str("address", address).Msg("serving ended; the cycles continue")
		}
	}()
	l.Addresses = append(l.Addresses, address)
	l.closers = append(l.closers, func() { stop(); <-ended })
}

// openMetrics serves only metrics. On loopback it checks the host name, because another site could make browsers read
// them (DNS rebinding). Without --web-config anyone who reaches the port may read them.
func (l *Listeners) openMetrics(ctx context.Context, at netip.AddrPort) error {
	if !at.IsValid() {
		return nil
	}
	listener, address, err := l.listenTCP(ctx, at)
	if err != nil {
		return command.WrongFlag("metrics", ": %w", err)
	}
	mux := http.NewServeMux()
	l.mountMetrics(mux, false)
	var handler http.Handler = mux
	if l.access != nil {
		handler = l.access.Protect(handler)
	}
	if protected := handler; isLoopback(at) {
		handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !web.AnswersTo(r.Host, nil) {
				http.Error(w, "this server answers only to localhost", http.StatusMisdirectedRequest)
				return
			}
			protected.ServeHTTP(w, r)
		})
	}
	l.serve(listener, handler, address+"metrics")
	return nil
}

func (l *Listeners) mountMetrics(mux *http.ServeMux, hideUsers bool) {
	if l.shown.Metrics != nil {
		l.shown.Metrics.Mount(mux, hideUsers)
	}
}

// Socket is the unix socket for the live view and programs.
type Socket struct {
	Path     string // absolute; empty for none
	Required bool   // asked for: a failure is an error, not a warning
}

func (o *Flags) readSocket(c *cli.Context, getenv func(string) string, once bool) (Socket, error) {
	path, given := o.socket, c.IsSet("socket")
	if !given {
		path = getenv(socket.Variable)
	}
	switch {
	case given && path == "":
		return Socket{}, command.WrongFlag("socket", ": write a path, or off")
	case path == socket.Off, !given && (once || c.Bool("dry-run")): // a dry run leaves the socket to a controller
		return Socket{}, nil
	case once:
		return Socket{}, needsLoop("socket")
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
		return command.WrongFlag("socket", ": %w", err)
	case err != nil:
		l.log.Warn().Err(err).Msg("the live state is not served; --socket PATH chooses another socket, --socket off " +
			"none")
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
