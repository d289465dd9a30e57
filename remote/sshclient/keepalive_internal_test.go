package sshclient

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// silent is a link from which only what a test says is heard.
type silent struct {
	link
	read atomic.Bool
}

func (s *silent) heard() bool { return s.read.Swap(false) }
func (s *silent) close()      {}

// A host is asked for a sign of life only if nothing was heard in an interval, and given up only
// after so many intervals in a row without an answer and without anything else.
func TestKeepAliveAsksSilentHosts(t *testing.T) {
	for name, c := range map[string]struct {
		intervals string // h: something was heard; s: silence; a: silence, and then an answer
		asked     int
		ended     bool
	}{
		"it sends all the time":            {"hhhhhhhh", 0, false},
		"it is silent, and answers":        {"aaaaaa", 6, false},
		"it is silent at last":             {"hhhs", 1, false},
		"it sends more while it is asked":  {"sshsshssh", 1, false},
		"one interval less":                {"sss", 1, false},
		"no answer":                        {"ssss", 1, true},
		"no answer after it sent":          {"hssss", 1, true},
		"what it sent before doesn't help": {"sshsss", 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			over := new(silent)
			conn := &connection{link: over, done: make(chan struct{})}
			k := &keepAlive{conn: conn, interval: time.Hour, count: 3, timer: time.NewTimer(time.Hour)}
			defer k.timer.Stop()
			asked := 0
			for _, what := range c.intervals {
				over.read.Store(what == 'h')
				if k.asks() {
					asked++
				}
				if what == 'a' {
					k.asked, k.missed = false, 0
				}
			}
			require.Equal(t, c.asked, asked)
			require.Equal(t, c.ended, !conn.alive())
		})
	}
}
