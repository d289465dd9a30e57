package monitoring

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/net/netutil"
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
	return netutil.LimitListener(listener, maxConnections), nil
}

// serve answers requests until the listener is closed by the returned function, which
// waits for answers under way only for a short time.
func serve(listener net.Listener, handler http.Handler) (failed <-chan error, stop func()) {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
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
