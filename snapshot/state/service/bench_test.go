package service_test

import (
	"fmt"
	"os"
	"os/exec"
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
	slowest, n := time.Duration(0), 0
	for b.Loop() {
		one := time.Now()
		_, err := h.client().Change(b.Context(), change.Change{Enter: &change.Enter{EID: "a", Kernel: fmt.Sprint(n % 10)}})
		require.NoError(b, err)
		slowest = max(slowest, time.Since(one))
		n++
		b.StopTimer()
		time.Sleep(60 * time.Millisecond) // below one's own rate
		b.StartTimer()
	}
	b.ReportMetric(float64(slowest.Microseconds())/1000, "slowest-ms")
}

func flood(b *testing.B, h *host) {
	cmd := exec.Command("/proc/self/exe", h.socket, "8ms")
	cmd.Env = append(os.Environ(), roleVariable+"=flood")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: &syscall.Credential{Uid: mallory, Gid: mallory}}
	require.NoError(b, cmd.Start())
	b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	time.Sleep(3 * time.Second) // its first requests were served
}
