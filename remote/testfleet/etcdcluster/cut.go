package etcdcluster

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Cut leads to the members of a cluster, as a network does that can be interrupted. Then what
// is sent is lost, and connections stay open, as when packets are dropped.
type Cut struct {
	listeners []net.Listener
	cut       atomic.Bool
	work      sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
}

// Cut returns a way to the cluster. It ends with the test.
func (c *Cluster) Cut(t testing.TB) *Cut {
	t.Helper()
	way := &Cut{conns: make(map[net.Conn]bool)}
	for _, m := range c.members {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		way.listeners = append(way.listeners, l)
		way.work.Go(func() { way.serve(l, net.JoinHostPort(m.address, clientPort)) })
	}
	t.Cleanup(way.close)
	return way
}

// Endpoints are URLs that lead to the members.
func (w *Cut) Endpoints() []string {
	var list []string
	for _, l := range w.listeners {
		list = append(list, "http://"+l.Addr().String())
	}
	return list
}

// Interrupt loses what is sent from now on, until Mend.
func (w *Cut) Interrupt() { w.cut.Store(true) }

// Mend ends what Interrupt began. Connections from before are over.
func (w *Cut) Mend() {
	w.closeConns()
	w.cut.Store(false)
}

func (w *Cut) close() {
	for _, l := range w.listeners {
		_ = l.Close()
	}
	w.closeConns()
	w.work.Wait()
}

func (w *Cut) closeConns() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		_ = c.Close()
	}
	clear(w.conns)
}

func (w *Cut) keep(c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns[c] = true
}

func (w *Cut) serve(l net.Listener, member string) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		w.keep(client)
		server, err := net.Dial("tcp", member)
		if err != nil {
			_ = client.Close()
			continue
		}
		w.keep(server)
		w.work.Go(func() { w.carry(server, client) })
		w.work.Go(func() { w.carry(client, server) })
	}
}

// carry copies until one end is closed, and loses what comes while the way is cut.
func (w *Cut) carry(to, from net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !w.cut.Load() {
			_, err = to.Write(buffer[:n])
		}
		if err == nil {
			continue
		}
		if !w.cut.Load() { // else the other end doesn't hear of it
			_ = to.Close()
			_ = from.Close()
		}
		return
	}
}
