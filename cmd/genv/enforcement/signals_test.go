package enforcement_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// background is `genv remote enforce` as a process of its own.
type background struct {
	t      *testing.T
	cmd    *exec.Cmd
	stderr testfleet.ProgramOutput
	cycles chan enforcement.CycleDocument
	ended  chan struct{}
}

func (d *background) said() string { return d.stderr.String() }

func startDaemon(t *testing.T, env []string, args ...string) *background {
	d := &background{t: t, cycles: make(chan enforcement.CycleDocument), ended: make(chan struct{})}
	d.cmd = exec.Command(genvtest.Program(t), append([]string{"remote", "enforce", "--format", "json"}, args...)...)
	d.cmd.Env = append(os.Environ(), append([]string{"HOME=" + t.TempDir()}, env...)...)
	d.cmd.Stderr = &d.stderr
	out := proctest.Try(d.cmd.StdoutPipe()).OK(t)
	require.NoError(t, d.cmd.Start())
	var read sync.WaitGroup
	read.Go(func() {
		for documents := json.NewDecoder(out); ; {
			var document enforcement.CycleDocument
			if documents.Decode(&document) != nil {
				return
			}
			select {
			case d.cycles <- document:
			case <-d.ended:
			}
		}
	})
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill() // it may have ended
		close(d.ended)
		read.Wait()
		_ = d.cmd.Wait()
	})
	return d
}

// next is a cycle for which ok holds; others are passed over.
func (d *background) next(ok func(enforcement.CycleDocument) bool) enforcement.CycleDocument {
	d.t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case c := <-d.cycles:
			if ok(c) {
				return c
			}
		case <-timeout:
			require.FailNow(d.t, "no such cycle came", d.said())
		}
	}
}

func (d *background) signal(s os.Signal) *background {
	require.NoError(d.t, d.cmd.Process.Signal(s))
	return d
}

// end waits for the end, and returns the cycles that came before it.
func (d *background) end() (rest []enforcement.CycleDocument, state *os.ProcessState) {
	over := make(chan *os.ProcessState, 1)
	go func() {
		state, _ := d.cmd.Process.Wait() // its state says it all
		over <- state
	}()
	timeout := time.After(time.Minute)
	for {
		select {
		case c := <-d.cycles:
			rest = append(rest, c)
		case state := <-over:
			for quiet := time.After(200 * time.Millisecond); ; { // what is still in the pipe
				select {
				case c := <-d.cycles:
					rest = append(rest, c)
				case <-quiet:
					return rest, state
				}
			}
		case <-timeout:
			require.FailNow(d.t, "it does not end", d.said())
		}
	}
}

// signalUntilItEnds sends a signal again and again, and returns by which signal it ended, and after how long.
func (d *background) signalUntilItEnds(s syscall.Signal) (by syscall.Signal, took time.Duration) {
	begun := time.Now()
	again := time.AfterFunc(0, func() {
		for d.cmd.Process.Signal(s) == nil {
			time.Sleep(20 * time.Millisecond)
		}
	})
	defer again.Stop()
	_, state := d.end()
	return state.Sys().(syscall.WaitStatus).Signal(), time.Since(begun)
}

func idleHost() *genvhost.Host {
	return genvhost.New(&snapshot.Snapshot{Devices: []snapshot.Device{{TotalMemory: snapshot.MiB(1000)}}})
}

// slowHost takes its time over orders, and says on begun that it has one.
func slowHost(begun chan<- struct{}, wait time.Duration) *genvhost.Host {
	h := genvhost.New(&snapshot.Snapshot{
		Devices:   []snapshot.Device{{TotalMemory: snapshot.MiB(1000)}},
		Processes: []snapshot.Process{{PID: 7, Start: 9, Usage: []snapshot.DeviceUsage{{Memory: snapshot.MiB(5)}}}},
	})
	h.Behave(func(request string) genvhost.Behavior {
		if request != agent.RequestExecute {
			return genvhost.Behavior{}
		}
		begun <- struct{}{}
		return genvhost.Behavior{Wait: wait}
	})
	return h
}

// TestSIGTERM: an order that is under way is waited for, no other is begun, and the outcome is told before the end.
func TestSIGTERM(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 10)
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: slowHost(begun, 2*time.Second)})
	d := startDaemon(t, nil, "-F", f.SSHConfig(), "-H", "a", "--interval", "1", "--non-env-processes")
	<-begun
	d.signal(syscall.SIGTERM)
	rest, state := d.end()
	require.True(t, state.Exited(), "%v: %s", state, d.said())
	require.Zero(t, state.ExitCode(), d.said())
	require.Len(t, rest, 1)
	require.Len(t, rest[0].Orders, 1)
	require.True(t, rest[0].Orders[0].Sent)
	require.EqualValues(t, "terminated", rest[0].Orders[0].Outcomes[0].Status)
}

func TestASecondSIGTERM(t *testing.T) {
	begun := make(chan struct{}, 10)
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: slowHost(begun, time.Hour)})
	d := startDaemon(t, nil, "-F", f.SSHConfig(), "-H", "a", "--interval", "1", "--non-env-processes")
	<-begun
	by, took := d.signalUntilItEnds(syscall.SIGTERM)
	require.Equal(t, syscall.SIGTERM, by)
	require.GreaterOrEqual(t, took, time.Second, "within a second it may be the same one")
}

// TestSIGHUP: hosts are read again; those that stay keep their conversations, and what is wrong changes nothing.
func TestSIGHUP(t *testing.T) {
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: idleHost()}, &inprocess.Server{Name: "b", Handler: idleHost()}, &inprocess.Server{Name: "c", Handler: idleHost()})
	hosts := filepath.Join(t.TempDir(), "hosts")
	put := func(text string) { require.NoError(t, os.WriteFile(hosts, []byte(text), 0o644)) }
	put("a\nb\n")
	d := startDaemon(t, nil, "-F", f.SSHConfig(), "--hostfile", hosts, "--interval", "0.1")
	only := func(names ...string) func(enforcement.CycleDocument) bool {
		return func(c enforcement.CycleDocument) bool {
			ok := c.Answered == len(names) && len(c.Via) == len(names)
			for _, n := range names {
				ok = ok && c.Via[snapshot.Hostname(n)] == "stream"
			}
			return ok
		}
	}
	d.next(only("a", "b"))
	put("b\nc\n")
	d.signal(syscall.SIGHUP)
	d.next(only("b", "c"))
	require.Contains(t, d.said(), "read again")
	require.Equal(t, 1, f.Host("b").Counts().Commands, "the same conversation as before")

	put("b\nb@\n")
	d.signal(syscall.SIGHUP)
	require.Eventually(t, func() bool { return strings.Contains(d.said(), "the old hosts and the old policy stay") }, 10*time.Second, 10*time.Millisecond, d.said())
	d.next(only("b", "c"))
	require.Equal(t, 1, f.Host("b").Counts().Commands)
	d.signal(syscall.SIGTERM)
	_, state := d.end()
	require.Zero(t, state.ExitCode(), d.said())
}

// TestSystemdIsTold: ready, reloading, alive, stopping.
func TestSystemdIsTold(t *testing.T) {
	socket := filepath.Join(proctest.PublicDir(t, 0o700), "s")
	listener := proctest.Try(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})).OK(t)
	var told messages
	var read sync.WaitGroup
	read.Go(func() { told.read(listener) })
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		read.Wait()
	})
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: idleHost()})
	d := startDaemon(t, []string{"NOTIFY_SOCKET=" + socket, "WATCHDOG_USEC=200000"}, "-F", f.SSHConfig(), "-H", "a", "--interval", "0.2")
	d.next(func(enforcement.CycleDocument) bool { return true })
	told.await(t, "READY=1")
	told.await(t, "WATCHDOG=1")
	told.await(t, "STATUS=cycle 1: 1 of 1 host answered")
	d.signal(syscall.SIGHUP)
	go d.drain()
	told.await(t, "RELOADING=1\nMONOTONIC_USEC=")
	d.signal(syscall.SIGTERM)
	told.await(t, "STOPPING=1")
}

// drain reads cycles that are not looked at, until the end of the test.
func (d *background) drain() {
	for {
		select {
		case <-d.cycles:
		case <-d.ended:
			return
		}
	}
}

// messages are what systemd is told, each behind a zero byte.
type messages struct{ testfleet.ProgramOutput }

func (m *messages) read(from io.Reader) {
	for buffer := make([]byte, 4096); ; {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		fmt.Fprintf(m, "\x00%s", buffer[:n])
	}
}

func (m *messages) await(t *testing.T, begins string) {
	t.Helper()
	came := func() bool { return strings.Contains(m.String(), "\x00"+begins) }
	require.Eventually(t, came, 20*time.Second, 10*time.Millisecond, "%q did not come: %s", begins, m)
}
