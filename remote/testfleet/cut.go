package testfleet

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Cut leads to some addresses, as a network does that can be interrupted. Then what is sent is
// lost, and connections stay open, as when packets are dropped.
type Cut struct {
	listeners         []net.Listener
	requests, answers atomic.Bool // are lost
	work              sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
}

// StartCut returns a way to addresses. It ends with the test.
func StartCut(t testing.TB, addresses ...string) *Cut {
	t.Helper()
	way := &Cut{conns: make(map[net.Conn]bool)}
	for _, address := range addresses {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		way.listeners = append(way.listeners, l)
		way.work.Go(func() { way.serve(l, address) })
	}
	t.Cleanup(way.close)
	return way
}

// Addresses lead to those of StartCut, in their order.
func (w *Cut) Addresses() []string {
	var list []string
	for _, l := range w.listeners {
		list = append(list, l.Addr().String())
	}
	return list
}

// Interrupt loses what is sent from now on, in both directions, until Mend.
func (w *Cut) Interrupt() {
	w.requests.Store(true)
	w.answers.Store(true)
}

// LoseRequests loses what is sent to the addresses from now on, and LoseAnswers what they send, until Mend.
func (w *Cut) LoseRequests() { w.requests.Store(true) }

// LoseAnswers is the other direction of LoseRequests.
func (w *Cut) LoseAnswers() { w.answers.Store(true) }

// Mend ends what was begun. Connections from before are over.
func (w *Cut) Mend() {
	w.closeConns()
	w.requests.Store(false)
	w.answers.Store(false)
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

func (w *Cut) serve(l net.Listener, address string) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		w.keep(client)
		server, err := net.Dial("tcp", address)
		if err != nil {
			_ = client.Close()
			continue
		}
		w.keep(server)
		w.work.Go(func() { carry(server, client, &w.requests) })
		w.work.Go(func() { carry(client, server, &w.answers) })
	}
}

// carry copies until one end is closed, and loses what comes while the direction is cut.
func carry(to, from net.Conn, lost *atomic.Bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !lost.Load() {
			_, err = to.Write(buffer[:n])
		}
		if err == nil {
			continue
		}
		if !lost.Load() { // else the other end doesn't hear of it
			_ = to.Close()
			_ = from.Close()
		}
		return
	}
}
