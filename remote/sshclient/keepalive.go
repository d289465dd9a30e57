package sshclient

import (
	"fmt"
	"sync"
	"time"
)

// keepAlive asks a host for a sign of life.
type keepAlive struct {
	conn     *connection
	interval time.Duration
	count    int

	mu     sync.Mutex
	timer  *time.Timer
	asked  bool
	missed int // intervals without an answer
}

// keepAlive sends a request in each interval in which nothing was heard, and closes the connection
// after count intervals without an answer: the library would wait forever for a host that is frozen
// or unreachable.
// Between two requests there is only a timer: a goroutine for each host would take more memory.
func (c *Client) keepAlive(l *connection, interval time.Duration, count int) {
	k := &keepAlive{conn: l, interval: interval, count: count}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.timer = time.AfterFunc(interval, func() { c.spawn(k.tick) })
}

func (k *keepAlive) tick() {
	if k.asks() && k.conn.link.ping() == nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.asked, k.missed = false, 0
	}
}

// asks says whether to send a request now. While there is one without an answer, it counts
// intervals instead.
func (k *keepAlive) asks() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.conn.alive() {
		return false
	}
	k.timer.Reset(k.interval)
	if k.conn.link.heard() {
		k.missed = 0
		return false
	}
	if !k.asked {
		k.asked = true
		return true
	}
	if k.missed++; k.missed >= k.count {
		k.conn.close(fmt.Errorf("no sign of life for %s", k.interval*time.Duration(k.count)))
	}
	return false
}
