package socket

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Bounds of a server. A Prometheus keeps its connection between two scrapes, a minute apart; a live view has two.
const (
	maxConnections = 512
	readTimeout    = 5 * time.Second // of a request
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
	maxBodyBytes   = 16 << 10 // of a request
	// writeTimeout is how long a client has to take a piece of an answer.
	writeTimeout = 10 * time.Second
	piece        = 64 << 10
)

const stopTimeout = 500 * time.Millisecond // for answers that are being written

// Serve answers requests until stop is called, which closes the listener, ends the contexts of requests and waits a
// short time for answers. PeerOf tells handlers who is at the other end of a unix socket.
func Serve(listener net.Listener, handler http.Handler) (failed <-chan error, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	open := new(connections)
	server := &http.Server{
		Handler:           http.MaxBytesHandler(patient(handler, writeTimeout), maxBodyBytes),
		ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: 2 * writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ConnState: open.changed,
		BaseContext: func(net.Listener) context.Context { return ctx }, ConnContext: open.add,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	return ended, func() {
		cancel()
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close() // cuts what is left
		}
	}
}

// patient bounds the time for each piece of an answer, but not for all of it.
func patient(handler http.Handler, forPiece time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(&writer{w, http.NewResponseController(w), forPiece}, r)
	})
}

type writer struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

// Write implements io.Writer.
func (w *writer) Write(p []byte) (written int, err error) {
	for {
		next := p[:min(len(p), piece)]
		if err := w.control.SetWriteDeadline(time.Now().Add(w.timeout)); err != nil {
			return written, err
		}
		n, err := w.ResponseWriter.Write(next)
		written, p = written+n, p[n:]
		if err != nil || len(p) == 0 {
			return written, err
		}
	}
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// connections are the open connections, the oldest first. Beyond maxConnections the oldest of the user with most is
// closed. If new ones were refused, or the oldest of all closed, one user could shut out others.
type connections struct {
	mu   sync.Mutex
	open []connection
}

type connection struct {
	net.Conn
	from string // the user of a unix socket, or the address
}

// add is for http.Server.ConnContext.
func (c *connections) add(ctx context.Context, conn net.Conn) context.Context {
	ctx = WithPeer(ctx, conn)
	from, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
	if peer, known := PeerOf(ctx); known {
		from = fmt.Sprintf("uid %d", peer.UID)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open = append(c.open, connection{conn, from}); len(c.open) <= maxConnections {
		return ctx
	}
	counts, most := make(map[string]int), 0
	for _, open := range c.open {
		counts[open.from]++
		most = max(most, counts[open.from])
	}
	at := slices.IndexFunc(c.open, func(open connection) bool { return counts[open.from] == most })
	_ = c.open[at].Close() // its reader or writer gets an error
	c.open = slices.Delete(c.open, at, at+1)
	return ctx
}

// changed is for http.Server.ConnState.
func (c *connections) changed(conn net.Conn, now http.ConnState) {
	if now != http.StateClosed && now != http.StateHijacked {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = slices.DeleteFunc(c.open, func(open connection) bool { return open.Conn == conn })
}
