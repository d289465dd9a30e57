package listeners

import (
	"context"
	"net/http"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote/web"
)

// Metrics is the port that Prometheus scrapes.
type Metrics struct {
	Address string // empty for none
	Port    int
}

func (m *Metrics) asked() bool { return m.Address != "" }

func metricsFlags() []cli.Flag {
	return []cli.Flag{&cli.StringFlag{
		Name: "metrics", Category: command.Site + command.Loop, Usage: "serve metrics for Prometheus on `ADDRESS`, such as 127.0.0.1:9400; :9400 is on all addresses of this machine",
	}}
}

func readMetrics(c *cli.Context, once bool) (m Metrics, err error) {
	if !command.IsGiven(c, "metrics") {
		return m, nil
	}
	if once {
		return m, needsLoop("metrics")
	}
	m.Address, m.Port, err = readAddress("metrics", c.String("metrics"), "127.0.0.1:9400", "")
	return m, err
}

// openMetrics serves only what Prometheus needs. On loopback, browsers on this machine
// could be made to read it by another site (DNS rebinding), so the name is checked.
// Elsewhere it answers to any name. Without --web-config whoever reaches the port may read it.
func (l *Listeners) openMetrics(ctx context.Context, config Metrics) error {
	if !config.asked() {
		return nil
	}
	listener, address, err := l.listenTCP(ctx, config.Address, config.Port)
	if err != nil {
		return command.UsageError("--metrics: %w", err)
	}
	mux := http.NewServeMux()
	l.mountMetrics(mux, false)
	var handler http.Handler = mux
	if l.access != nil {
		handler = l.access.Protect(handler)
	}
	if isLoopback(config.Address) {
		handler = loopbackOnly(handler)
	}
	l.serve(listener, handler, address+"metrics")
	return nil
}

// mountMetrics adds the metrics to what a listener serves.
func (l *Listeners) mountMetrics(mux *http.ServeMux, hideUsers bool) {
	if l.shown.Metrics != nil {
		l.shown.Metrics.Mount(mux, hideUsers)
	}
}

// loopbackOnly refuses requests for names that are not loopback's.
func loopbackOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !web.AnswersTo(r.Host, nil) {
			http.Error(w, "this server answers only to localhost", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
