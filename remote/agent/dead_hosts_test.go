package agent_test

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/sshclient"
)

// TestSoakDeadHosts measures what a thousand dead hosts cost the controller in
// cycles of a second, without limits: times depend on the machine.
func TestSoakDeadHosts(t *testing.T) {
	if os.Getenv("GENV_SOAK") == "" {
		t.Skip("this measures times: make soak")
	}
	const count, interval = 1000, time.Second
	for name, port := range map[string]int{"connections are refused": refusingPort(t), "packets are lost": silentPort(t)} {
		t.Run(name, func(t *testing.T) {
			client, err := sshclient.New(sshclient.Options{ConfigFile: "none", ConnectTimeout: 200 * time.Millisecond})
			require.NoError(t, err)
			defer client.Close()
			pool := &agent.Pool{Start: agent.StartWith(client.Start), Network: client, Timeout: 10 * time.Second, Fanout: count, Log: zerolog.Nop()}
			defer pool.Close()
			var hosts []remote.Host
			for i := range count {
				hosts = append(hosts, remote.Host{Name: fmt.Sprintf("h%d", i), Address: "127.0.0.1", Port: port})
			}
			cycle := func() {
				for _, r := range remote.Each(t.Context(), hosts, count, pool.Snapshot) {
					require.Error(t, r.Err)
				}
			}
			for range 10 { // until all back-offs are as long as they get
				cycle()
				time.Sleep(interval)
			}
			const cycles = 20
			begun, before := time.Now(), cpuTime(t)
			for range cycles {
				cycle()
				time.Sleep(interval)
			}
			share := float64(cpuTime(t)-before) / float64(time.Since(begun))
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			t.Logf("%.2f %% of a core, %d goroutines, %d MiB of stacks, %d MiB of heap", 100*share, runtime.NumGoroutine(), m.StackInuse>>20, m.HeapInuse>>20)
		})
	}
}

func cpuTime(t *testing.T) time.Duration {
	var u unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// refusingPort is one at which nothing listens.
func refusingPort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// silentPort is one whose queue is full: the kernel drops what comes.
func silentPort(t *testing.T) int {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, unix.Listen(fd, 0))
	address, err := unix.Getsockname(fd)
	require.NoError(t, err)
	port := address.(*unix.SockaddrInet4).Port
	for range 4 {
		conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), 100*time.Millisecond)
		if err == nil {
			t.Cleanup(func() { _ = conn.Close() })
		}
	}
	return port
}
