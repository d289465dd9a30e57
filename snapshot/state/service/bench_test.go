package service_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// BenchmarkAttach is how long a change takes, alone and while another user asks for a
// thousand a second.
func BenchmarkAttach(b *testing.B) {
	b.Run("alone", func(b *testing.B) { benchmarkAttach(b, false) })
	b.Run("flood", func(b *testing.B) { benchmarkAttach(b, true) })
}

func benchmarkAttach(b *testing.B, flooded bool) {
	needsRoot(b)
	h := newHost(b, 4)
	h.serve(b, service.Bounds{})
	if flooded {
		flood(b, h)
	}
	var took []time.Duration
	before, begun := asked(b, h), time.Now()
	for b.Loop() {
		one := time.Now()
		_, err := h.client().Change(b.Context(), change.Change{Enter: &change.Enter{EID: "a", Kernel: fmt.Sprint(len(took) % 10)}})
		require.NoError(b, err)
		took = append(took, time.Since(one))
		b.StopTimer()
		time.Sleep(60 * time.Millisecond) // below one's own rate
		b.StartTimer()
	}
	slices.Sort(took)
	b.ReportMetric(milliseconds(took[len(took)/2]), "median-ms")
	b.ReportMetric(milliseconds(took[len(took)-1]), "slowest-ms")
	b.ReportMetric(float64(asked(b, h)-before)/time.Since(begun).Seconds(), "requests/s")
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// asked is how many requests the service has had.
func asked(b *testing.B, h *host) uint64 {
	status, err := h.client().Status(b.Context())
	require.NoError(b, err)
	return status.Served + status.Refused
}

func flood(b *testing.B, h *host) {
	cmd := exec.Command("/proc/self/exe", h.socket, "8ms")
	cmd.Env = append(os.Environ(), roleVariable+"=flood")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: &syscall.Credential{Uid: mallory, Gid: mallory}}
	require.NoError(b, cmd.Start())
	b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	time.Sleep(3 * time.Second) // its first requests were served
}
