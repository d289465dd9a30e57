package listeners

import (
	"context"
	"crypto/tls"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/server"
	"github.com/seed-3119e985/genv/remote/live/api"
	"github.com/seed-3119e985/genv/remote/live/socket"
	"github.com/seed-3119e985/genv/remote/web"
	"github.com/seed-3119e985/genv/remote/web/htpasswd"
)

// Web is where the web page is served, and to whom.
type Web struct {
	Unix      string // path of a socket; empty for TCP
	Address   string // of TCP
	Port      int
	Names     web.Names
	Passwords string   // path; empty for everybody who can connect
	Cert, Key string   // paths; empty for no TLS
	Hosts     []string // names besides those of loopback
}

// asked reports whether there is to be a web page.
func (w *Web) asked() bool { return w.Unix != "" || w.Address != "" }

func webFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "web", Usage: "serve a web page on `ADDRESS`, such as 127.0.0.1:8080 or unix:/run/genv-controller/web.sock"},
		command.OneOf(&cli.StringFlag{Name: "web-names", Value: string(web.AllNames), Usage: "the users' `NAMES` that the web page shows: all, self (of who is logged in) or none"}, []string{"all", "self", "none"}),
		&cli.StringFlag{Name: "web-auth", Usage: "who may see the web page: a `FILE` of htpasswd with bcrypt (htpasswd -B)"},
		&cli.StringFlag{Name: "web-tls-cert", Usage: "the web page's certificate, with its chain (`FILE`, PEM)"},
		&cli.StringFlag{Name: "web-tls-key", Usage: "the key of the certificate (`FILE`, PEM)"},
		&cli.StringSliceFlag{Name: "web-host", Usage: "a `NAME` by which browsers may ask for the web page, besides localhost; repeatable"},
	}
}

func readWeb(c *cli.Context, once bool) (Web, error) {
	if !command.IsGiven(c, "web") {
		for _, name := range []string{"web-names", "web-auth", "web-tls-cert", "web-tls-key", "web-host"} {
			if command.IsGiven(c, name) {
				return Web{}, command.UsageError("--%s needs --web", name)
			}
		}
		return Web{}, nil
	}
	if once {
		return Web{}, needsLoop("web")
	}
	w := Web{
		Names: web.Names(c.String("web-names")), Passwords: c.String("web-auth"),
		Cert: c.String("web-tls-cert"), Key: c.String("web-tls-key"), Hosts: c.StringSlice("web-host"),
	}
	if err := w.readAddress(c.String("web")); err != nil {
		return Web{}, err
	}
	return w, w.check()
}

func (w *Web) readAddress(text string) error {
	if path, found := strings.CutPrefix(text, "unix:"); found && path != "" {
		var err error
		w.Unix, err = filepath.Abs(path)
		return err
	}
	var err error
	w.Address, w.Port, err = readAddress("web", text, "127.0.0.1:8080", ", or a socket, such as unix:/run/genv-controller/web.sock")
	return err
}

// check refuses what would show the fleet to those who may not see it, or that would only refuse.
func (w *Web) check() error {
	for _, host := range w.Hosts {
		if host == "" || strings.ContainsAny(host, "/*?# ") || strings.Contains(host, ":") && net.ParseIP(strings.Trim(host, "[]")) == nil {
			return command.UsageError("--web-host %q: write a name without https:// and without a port, as gpus.example.org", host)
		}
	}
	exposed := w.Unix == "" && !isLoopback(w.Address)
	switch {
	case w.Names != web.AllNames && w.Names != web.OwnName && w.Names != web.NoNames:
		return command.UsageError("--web-names %q: write all, self or none", w.Names)
	case (w.Cert == "") != (w.Key == ""):
		return command.UsageError("--web-tls-cert and --web-tls-key belong together: write both")
	case w.Unix != "" && w.Cert != "":
		return command.UsageError("--web-tls-cert: a unix socket has no TLS; the proxy in front of it has")
	case exposed && w.Passwords == "":
		return command.UsageError("--web %s can be reached from other machines: say with --web-auth FILE who may look, or serve on 127.0.0.1 or a unix socket, with a proxy in front", w.where())
	case exposed && w.Cert == "":
		return command.UsageError("--web %s can be reached from other machines, and passwords would cross the network in clear: give --web-tls-cert and --web-tls-key, or serve on 127.0.0.1 or a unix socket, with a proxy in front", w.where())
	case exposed && len(w.Hosts) == 0:
		return command.UsageError("--web %s: say with --web-host by which name browsers ask for it; others are refused", w.where())
	case w.Names == web.OwnName && w.Passwords == "" && w.Unix == "":
		return command.UsageError("--web-names self: the page knows who looks only with --web-auth FILE, or from a proxy in front of --web unix:PATH; --web-names none shows no names")
	}
	return nil
}

func (w *Web) where() string {
	if w.Unix != "" {
		return "unix:" + w.Unix
	}
	return net.JoinHostPort(w.Address, strconv.Itoa(w.Port))
}

func (l *Listeners) openWeb(ctx context.Context, config Web) error {
	if !config.asked() {
		return nil
	}
	options := web.Options{
		Now: time.Now, Names: config.Names, Hosts: config.Hosts, Proxied: config.Unix != "" && config.Passwords == "",
		API:    api.New,
		Usage:  l.shown.Usage,
		Mount:  l.mountMetrics,
		Failed: func(err error) { l.log.Error().Err(err).Msg("the web page failed; the cycles continue") },
	}
	if config.Passwords != "" {
		var err error
		if options.Passwords, err = htpasswd.Open(config.Passwords, time.Now); err != nil {
			return command.UsageError("--web-auth: %w", err)
		}
	}
	listener, address, err := config.listen(ctx)
	if err != nil {
		return command.UsageError("--web: %w", err)
	}
	l.serve(listener, web.New(l.shown.Feed, options), address)
	return nil
}

// listen opens the listener; its address is for people.
func (w *Web) listen(ctx context.Context) (net.Listener, string, error) {
	if w.Unix != "" {
		listener, err := socket.Listen(ctx, w.Unix)
		if err != nil {
			return nil, "", err
		}
		return listener, w.where(), nil
	}
	var secure *tls.Config
	if w.Cert != "" {
		certificate, err := web.OpenCertificate(w.Cert, w.Key, time.Now)
		if err != nil {
			return nil, "", err
		}
		secure = certificate.Config()
	}
	listener, err := server.ListenTCP(ctx, w.Address, w.Port)
	if err != nil {
		return nil, "", err
	}
	if secure == nil {
		return listener, "http://" + listener.Addr().String() + "/", nil
	}
	return tls.NewListener(listener, secure), "https://" + listener.Addr().String() + "/", nil
}
