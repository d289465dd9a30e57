package controller_test

import (
	"net"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// durations are how long cycles took: of a soak of days the latest ones.
type durations struct {
	latest  [1000]time.Duration
	count   int
	longest time.Duration
}

func (d *durations) add(took time.Duration) {
	d.latest[d.count%len(d.latest)] = took
	d.count++
	d.longest = max(d.longest, took)
}

func (d *durations) median() time.Duration {
	sorted := slices.Sorted(slices.Values(d.latest[:min(d.count, len(d.latest))]))
	return sorted[len(sorted)/2]
}

// logHeap shows whether anything grows while the soak goes on.
func (s *soak) logHeap() {
	s.mu.Lock()
	violations := s.nextPID - firstPID
	s.mu.Unlock()
	s.t.Logf("after %d violations %+v", violations, resources(s.t))
}

// usage is what this process holds.
type usage struct {
	goroutines, descriptors int
	heap                    uint64
}

func resources(t *testing.T) usage {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // the runtime's own descriptors come with the first use of the network
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{goroutines: runtime.NumGoroutine(), descriptors: len(entries), heap: m.HeapAlloc}
}

// same requires that all was given back.
func (u usage) same(t *testing.T) {
	now := resources(t)
	for deadline := time.Now().Add(10 * time.Second); now.goroutines > u.goroutines || now.descriptors > u.descriptors; now = resources(t) {
		require.True(t, time.Now().Before(deadline), "before %+v, after %+v", u, now)
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("before %+v, after %+v", u, now)
	const slack = 8 << 20 // what packages keep for ever, such as pools
	require.LessOrEqual(t, now.heap, u.heap+slack)
}
