package monitoring

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Bounds of the server, so that slow clients and many of them can't exhaust it. A
// Prometheus keeps its connection between two scrapes, which are a minute apart at most
// by default.
const (
	maxConnections = 128
	readTimeout    = 5 * time.Second // of a request
	writeTimeout   = 20 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
)

// stopTimeout is for how long the end waits for answers that are being written.
const stopTimeout = 500 * time.Millisecond

// listen opens the server's port.
func listen(ctx context.Context, address string, port int) (net.Listener, error) {
	where := net.JoinHostPort(address, strconv.Itoa(port))
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", where)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("another program serves on %s: end it (`ss -ltnp 'sport = :%d'` shows which one), or choose another port with --port", where, port)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("%s is not an address of this machine: choose one with --address (`ip address` lists them)", address)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("only root may serve on port %d: choose one above 1023 with --port", port)
	case err != nil:
		return nil, fmt.Errorf("serve on %s: %w", where, err)
	}
	return listener, nil
}

// serve answers requests until the listener is closed by the returned function, which
// waits for answers under way only for a short time.
func serve(listener net.Listener, handler http.Handler) (failed <-chan error, stop func()) {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ConnState: new(connections).changed,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	return ended, func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close() // cuts what is left
		}
	}
}

// connections are those that are open, the oldest first. Beyond maxConnections the oldest
// is closed: with a limit on new ones, whoever keeps that many would shut others out.
type connections struct {
	mu   sync.Mutex
	open []net.Conn
}

// changed is for http.Server.
func (c *connections) changed(conn net.Conn, now http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch now {
	case http.StateNew:
		if c.open = append(c.open, conn); len(c.open) > maxConnections {
			_ = c.open[0].Close() // its end is noticed where it is read or written
			c.open = slices.Delete(c.open, 0, 1)
		}
	case http.StateClosed, http.StateHijacked:
		c.open = slices.DeleteFunc(c.open, func(open net.Conn) bool { return open == conn })
	case http.StateActive, http.StateIdle:
	}
}
