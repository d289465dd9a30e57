package listeners

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote/live/socket"
	"github.com/seed-3119e985/genv/remote/web"
)

// Web is the address and the audience of the web page.
type Web struct {
	Unix    string         // path of a socket; empty for TCP
	Address netip.AddrPort // of TCP
	Names   web.Names
	Hosts   []string // names besides loopback's
}

// Page is the page's address in browsers; empty if its name is unknown.
func (w *Web) Page() string {
	switch {
	case !w.asked() || len(w.Hosts) == 0:
		return ""
	case w.exposed() && w.Address.Port() != 443:
		return "https://" + net.JoinHostPort(w.Hosts[0], strconv.Itoa(int(w.Address.Port())))
	}
	return "https://" + w.Hosts[0] // behind a proxy
}

func (w *Web) asked() bool { return w.Unix != "" || w.Address.IsValid() }

func (o *Flags) readWeb(c *cli.Context, once bool) (Web, error) {
	if !c.IsSet("web") {
		for _, name := range []string{"web-names", "web-host"} {
			if c.IsSet(name) {
				return Web{}, command.WrongFlag(name, " needs --web")
			}
		}
		return Web{}, nil
	}
	if once {
		return Web{}, needsLoop("web")
	}
	w := Web{Names: o.names, Hosts: o.hosts}
	if err := w.readAddress(o.web); err != nil {
		return Web{}, err
	}
	return w, w.check(o.webConfig != "")
}

func (w *Web) readAddress(text string) (err error) {
	if path, found := strings.CutPrefix(text, "unix:"); found && path != "" {
		w.Unix, err = filepath.Abs(path)
		return err
	}
	const orSocket = ", or a socket, such as unix:/run/genv-controller/web.sock"
	w.Address, err = readAddress("web", text, "127.0.0.1:8080", orSocket)
	return err
}

// check refuses what would show the fleet to the wrong people, or only refuse them. checkAccess completes it when the
// file of --web-config is read.
func (w *Web) check(hasFile bool) error {
	for _, host := range w.Hosts {
		hasPort := strings.Contains(host, ":") && net.ParseIP(strings.Trim(host, "[]")) == nil
		if host == "" || strings.ContainsAny(host, "/*?# ") || hasPort {
			return command.WrongFlag("web-host",
				" %q: write a name without https:// and without a port, as gpus.example.org", host)
		}
	}
	switch {
	case w.exposed() && !hasFile:
		return command.WrongFlag("web", " %s can be reached from other machines: say with --web-config FILE who may "+
			"look, or serve on 127.0.0.1 or a unix socket, with a proxy in front", w.where())
	case w.exposed() && len(w.Hosts) == 0:
		return command.WrongFlag("web",
			" %s: say with --web-host by which name browsers ask for it; others are refused", w.where())
	case w.Names == web.OwnName && !hasFile && w.Unix == "":
		return command.UsageError(selfNeedsUsers)
	}
	return nil
}

const selfNeedsUsers = "--web-names self: the page knows who looks only with basic_auth_users in the file of " +
	"--web-config, or from a proxy in front of --web unix:PATH; --web-names none shows no names"

func (w *Web) exposed() bool { return w.Unix == "" && !isLoopback(w.Address) }

func (w *Web) checkAccess(file string, has web.Demands) error {
	switch {
	case w.exposed() && !has.TLS:
		return command.WrongFlag("web", " %s can be reached from other machines, and passwords would cross the "+
			"network in clear: add tls_server_config to %s, or serve on 127.0.0.1 or a unix socket, with a proxy in "+
			"front", w.where(), file)
	case w.exposed() && !has.Passwords && !has.Certificates:
		return command.WrongFlag("web", " %s can be reached from other machines: say in %s who may look, "+
			"with basic_auth_users or `client_auth_type: RequireAndVerifyClientCert`", w.where(), file)
	case w.Names == web.OwnName && !has.Passwords:
		return command.UsageError(selfNeedsUsers)
	}
	return nil
}

func (w *Web) where() string {
	if w.Unix != "" {
		return "unix:" + w.Unix
	}
	return w.Address.String()
}

func (l *Listeners) openWeb(ctx context.Context, config Web, file string) error {
	if !config.asked() {
		return nil
	}
	options := web.Options{
		Now: time.Now, Names: config.Names, Hosts: config.Hosts, Proxied: config.Unix != "", Usage: l.shown.Usage,
		Recorded: l.shown.Recorded, Mount: l.mountMetrics,
		Failed: func(err error) { l.log.Error().Err(err).Msg("the web page failed; the cycles continue") },
	}
	if config.Unix != "" {
		listener, err := socket.Listen(ctx, config.Unix)
		if err != nil {
			return command.WrongFlag("web", ": %w", err)
		}
		l.serve(listener, web.New(l.shown.Feed, options), config.where())
		return nil
	}
	if options.Access = l.access; l.access != nil {
		if err := config.checkAccess(file, l.access.Demands()); err != nil {
			return err
		}
	}
	listener, address, err := l.listenTCP(ctx, config.Address)
	if err != nil {
		return command.WrongFlag("web", ": %w", err)
	}
	l.serve(listener, web.New(l.shown.Feed, options), address)
	return nil
}

func (l *Listeners) openAccess(path string) (err error) {
	if path == "" {
		return nil
	}
	l.access, err = web.OpenAccess(path, time.Now, func(err error) {
		l.log.Error().Err(err).Str("file", path).Msg("a change of --web-config can't be used")
	})
	if err != nil {
		return command.WrongFlag("web-config", ": %w", err)
	}
	return nil
}

// listenTCP opens a port, with TLS if --web-config has a certificate. The URL is for people.
func (l *Listeners) listenTCP(ctx context.Context, at netip.AddrPort) (net.Listener, string, error) {
	listener, err := socket.ListenTCP(ctx, at.Addr().String(), int(at.Port()))
	if err != nil {
		return nil, "", err
	}
	url := "://" + listener.Addr().String() + "/"
	if l.access != nil && l.access.TLS() != nil {
		return tls.NewListener(listener, l.access.TLS()), "https" + url, nil
	}
	return listener, "http" + url, nil
}

// readAddress parses a flag's address and port, such as example; or is its other form, for the error.
func readAddress(flag, text, example, or string) (at netip.AddrPort, err error) {
	host, after, err := net.SplitHostPort(text)
	port, notANumber := strconv.ParseUint(after, 10, 16)
	if err != nil || notANumber != nil {
		return at, command.WrongFlag(flag, " %q: write an address and a port, as %s%s", text, example, or)
	}
	switch host {
	case "":
		host = "0.0.0.0"
	case "localhost":
		host = "127.0.0.1"
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return at, command.WrongFlag(flag, " %q: write the address of this machine in numbers, as %s", text, example)
	}
	return netip.AddrPortFrom(address, uint16(port)), nil
}

func isLoopback(at netip.AddrPort) bool { return at.Addr().Unmap().IsLoopback() }
