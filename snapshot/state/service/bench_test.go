package service_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// BenchmarkAttach is how long a change takes, alone and while another user asks for a
// thousand a second; with the state on a disk, which each change waits for, and in memory.
func BenchmarkAttach(b *testing.B) {
	for _, storage := range []struct{ name, parent string }{{"disk", "/tmp"}, {"tmpfs", "/dev/shm"}} {
		for _, flooded := range []bool{false, true} {
			load := map[bool]string{false: "alone", true: "flood"}[flooded]
			b.Run(storage.name+"/"+load, func(b *testing.B) { benchmarkAttach(b, storage.parent, flooded) })
		}
	}
}

func benchmarkAttach(b *testing.B, parent string, flooded bool) {
	proctest.NeedRoot(b)
	var onto unix.Statfs_t
	require.NoError(b, unix.Statfs(parent, &onto))
	if inMemory := onto.Type == unix.TMPFS_MAGIC; inMemory != (parent == "/dev/shm") {
		b.Skip(parent + " is on another kind of file system")
	}
	h := newHostIn(b, parent, 4)
	h.serve(b, service.Bounds{})
	if flooded {
		flood(b, h)
	}
	var took []time.Duration
	late := lateness(b)
	before, begun := asked(b, h), time.Now()
	for b.Loop() {
		one := time.Now()
		proctest.Try(h.client().Change(b.Context(), change.Change{Enter: &change.Enter{EID: "a", Kernel: fmt.Sprint(len(took) % 10)}})).OK(b)
		took = append(took, time.Since(one))
		b.StopTimer()
		time.Sleep(60 * time.Millisecond) // below one's own rate
		b.StartTimer()
	}
	slices.Sort(took)
	b.ReportMetric(milliseconds(took[len(took)/2]), "median-ms")
	b.ReportMetric(milliseconds(took[len(took)*99/100]), "p99-ms")
	b.ReportMetric(milliseconds(took[len(took)-1]), "slowest-ms")
	b.ReportMetric(milliseconds(late()), "late-ms")
	b.ReportMetric(float64(asked(b, h)-before)/time.Since(begun).Seconds(), "requests/s")
}

// lateness measures how long this process waits for a processor: the latest that a timer
// of 5 ms was. It is the machine's, whatever the service does.
func lateness(b *testing.B) (slowest func() time.Duration) {
	var latest atomic.Int64
	ctx := b.Context()
	go func() {
		const pause = 5 * time.Millisecond
		for ctx.Err() == nil {
			begun := time.Now()
			time.Sleep(pause)
			latest.Store(max(latest.Load(), int64(time.Since(begun)-pause)))
		}
	}()
	return func() time.Duration { return time.Duration(latest.Load()) }
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// asked is how many requests the service has had.
func asked(b *testing.B, h *host) uint64 {
	status := proctest.Try(h.client().Status(b.Context())).OK(b)
	return status.Served + status.Refused
}

func flood(b *testing.B, h *host) {
	cmd := exec.Command("/proc/self/exe", h.socket, "8ms")
	cmd.Env = append(os.Environ(), roleVariable+"=flood")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: &syscall.Credential{Uid: mallory, Gid: mallory}}
	proctest.Start(b, cmd)
	time.Sleep(3 * time.Second) // its first requests were served
}
