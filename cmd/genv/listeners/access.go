package listeners

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote/live/socket"
	"github.com/seed-3119e985/genv/remote/web"
)

func accessFlags() []cli.Flag {
	return []cli.Flag{&cli.StringFlag{
		Name: "web-config", Category: command.Site + command.Loop,
		Usage: "TLS and passwords of --web and --metrics: a `FILE` of the format of Prometheus' web.config.file; not for unix sockets",
	}}
}

func readAccess(c *cli.Context, config Config) (string, error) {
	path := c.String("web-config")
	switch {
	case !command.IsGiven(c, "web-config"):
		return "", nil
	case path == "":
		return "", command.UsageError("--web-config: write the path of a file")
	case config.Web.Address == "" && !config.Metrics.asked():
		return "", command.UsageError("--web-config needs --web or --metrics with an address; a unix socket has neither TLS nor passwords")
	}
	return path, nil
}

// openAccess reads the file of --web-config.
func (l *Listeners) openAccess(path string) (err error) {
	if path == "" {
		return nil
	}
	l.access, err = web.OpenAccess(path, time.Now, func(err error) {
		l.log.Error().Err(err).Str("file", path).Msg("a change of --web-config can't be used")
	})
	if err != nil {
		return command.UsageError("--web-config: %w", err)
	}
	return nil
}

// listenTCP opens a port, with TLS if the file of --web-config has a certificate. The URL is for people.
func (l *Listeners) listenTCP(ctx context.Context, address string, port int) (net.Listener, string, error) {
	listener, err := socket.ListenTCP(ctx, address, port)
	if err != nil {
		return nil, "", err
	}
	at := "://" + listener.Addr().String() + "/"
	if l.access == nil {
		return listener, "http" + at, nil
	}
	if secure := l.access.TLS(); secure != nil {
		return tls.NewListener(listener, secure), "https" + at, nil
	}
	return listener, "http" + at, nil
}

// readAddress reads an address of this machine and a port, as a flag has them. example is
// one of both, and or what else the flag takes.
func readAddress(flag, text, example, or string) (address string, port int, err error) {
	host, after, err := net.SplitHostPort(text)
	number, notANumber := strconv.ParseUint(after, 10, 16)
	if err != nil || notANumber != nil {
		return "", 0, command.UsageError("--%s %q: write an address and a port, as %s%s", flag, text, example, or)
	}
	switch host {
	case "":
		host = "0.0.0.0"
	case "localhost":
		host = "127.0.0.1"
	}
	if _, err := netip.ParseAddr(host); err != nil {
		return "", 0, command.UsageError("--%s %q: write the address of this machine in numbers, as %s", flag, text, example)
	}
	return host, int(number), nil
}

// isLoopback reports whether only this machine can connect to an address.
func isLoopback(address string) bool { return netip.MustParseAddr(address).Unmap().IsLoopback() }
