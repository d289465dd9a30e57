package service_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

const roleVariable = "GENV_SERVICE_TEST_ROLE"

// roles are what a child process of a test may be. Its arguments follow.
var roles = map[string]func(args []string) error{
	"ask":       askChild,
	"flood":     floodChild,
	"sit":       sitChild,
	"connect":   connectChild,
	"token":     tokenChild,
	"crowd":     crowdChild,
	"allowance": allowanceChild,
	"reserve":   reserveChild,
	"wait":      waitChild,
}

func TestMain(m *testing.M) {
	role, isChild := os.LookupEnv(roleVariable)
	if !isChild {
		goleak.VerifyTestMain(m)
		return
	}
	if err := roles[role](os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		os.Exit(1)
	}
}

// child is this test binary in a role, as a user without an account.
func child(t *testing.T, uid int, role string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if uid != os.Geteuid() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	}
	return cmd
}

// sit has a user open n connections, ask on each, and hold them.
func (h *host) sit(t *testing.T, uid, n int, request string) {
	t.Helper()
	sitting := child(t, uid, "sit", h.socket, strconv.Itoa(n), request)
	output := proctest.Try(sitting.StdoutPipe()).OK(t)
	proctest.Start(t, sitting)
	require.Equal(t, "sitting\n", proctest.Try(bufio.NewReader(output).ReadString('\n')).OK(t))
}

// host is a host of which root owns the state, with its service.
type host struct {
	dir, root, socket string
	store             *disk.Store
	proc              proc.FS
	before            func(change.Change) // a change is made
	made              []change.Change     // the changes that were made
	looks             func()              // before the host is looked at
	used              []snapshot.Process  // what it shows; mu guards it
	reserves          *service.Reservations
	begins            func(change.Change) // before its turn to make a change
	large             bool                // the document that it shows
	mu                sync.Mutex
}

// Change implements service.Backend.
func (h *host) Change(ctx context.Context, c change.Change, by change.Requester, turn func(context.Context) (func(), error)) (change.Result, error) {
	if h.begins != nil {
		h.begins(c)
	}
	return service.Changer{
		Store:       h.store,
		ListDevices: func(context.Context) ([]snapshot.Device, error) { return nil, errors.New("no nvidia-smi here") },
		Turn: func(ctx context.Context) (func(), error) {
			release, err := turn(ctx)
			if err == nil {
				h.mu.Lock()
				h.made = append(h.made, c)
				h.mu.Unlock()
				if h.before != nil {
					h.before(c)
				}
			}
			return release, err
		},
	}.Change(ctx, c, by)
}

// Snapshot implements service.Backend.
func (h *host) Snapshot(ctx context.Context) (*snapshot.Snapshot, error) {
	if h.looks != nil {
		h.looks()
	}
	files, err := h.store.Read(ctx)
	devices := files.Devices
	for i := range devices {
		devices[i].UUID = snapshot.GPUUUID(fmt.Sprint("GPU-", i))
		devices[i].UsedMemory = snapshot.MustMemory("1mi")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return &snapshot.Snapshot{Devices: devices, Environments: files.Environments, Processes: h.used}, err
}

// Look implements service.Backend.
func (h *host) Look(_ context.Context, name string, _ service.Viewer) (json.RawMessage, error) {
	if name != "devices" {
		return nil, fmt.Errorf("%w: no document %q", state.ErrRequest, name)
	}
	if h.large {
		return json.RawMessage(`"` + strings.Repeat("x", 8<<20) + `"`), nil
	}
	return json.RawMessage(`[{"seen":"by root"}]`), nil
}

// newHost is a host for a test, which runs beside others then.
func newHost(t testing.TB, devices int) *host {
	t.Helper()
	if test, isTest := t.(*testing.T); isTest {
		test.Parallel()
	}
	return newHostIn(t, "/tmp", devices) // a socket's path is short
}

// rootHost is newHost for a test that needs root.
func rootHost(t testing.TB, devices int) *host {
	t.Helper()
	proctest.NeedRoot(t)
	return newHost(t, devices)
}

// serving is rootHost with a running service.
func serving(t testing.TB, devices int) *host {
	t.Helper()
	h := rootHost(t, devices)
	h.serve(t, service.Bounds{})
	return h
}

// newHostIn is newHost with the host's files in a new folder of parent.
func newHostIn(t testing.TB, parent string, devices int) *host {
	t.Helper()
	top := proctest.Try(os.MkdirTemp(parent, "genv-service-")).OK(t)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(top)) })
	require.NoError(t, os.Chmod(top, 0o755))
	h := &host{dir: filepath.Join(top, "tmp/genv"), root: filepath.Join(top, "root"), socket: filepath.Join(top, "run/host.sock")}
	etc := filepath.Join(top, "etc")
	for _, dir := range []string{filepath.Dir(h.dir), h.root, filepath.Dir(h.socket), etc} {
		require.NoError(t, os.Mkdir(dir, 0o755))
	}
	passwd := accountLines(map[string]int{"root": 0, "alice": alice, "mallory": mallory})
	require.NoError(t, os.WriteFile(filepath.Join(etc, "passwd"), []byte(passwd), 0o644))
	h.proc.Accounts = &proc.Accounts{Etc: etc}
	require.NoError(t, os.Chmod(filepath.Dir(h.dir), os.ModeSticky|0o777))
	h.store = disk.New(h.dir, disk.Config{RootDir: h.root})
	found := make([]snapshot.Device, devices)
	for i := range found {
		found[i] = snapshot.Device{Index: snapshot.DeviceIndex(i), TotalMemory: snapshot.MustMemory("80g")}
	}
	_, err := h.store.RegisterDevices(t.Context(), found)
	require.NoError(t, err)
	_, _, err = h.store.TakeOver(t.Context(), nil)
	require.NoError(t, err)
	return h
}

// serve runs the service until the test ends, or until stop is called.
func (h *host) serve(t testing.TB, bounds service.Bounds) (server *service.Server, stop func()) {
	t.Helper()
	listener := proctest.Try(service.Listen(h.socket)).OK(t)
	return h.serveOn(t, listener, bounds)
}

func (h *host) serveOn(t testing.TB, listener *net.UnixListener, bounds service.Bounds) (server *service.Server, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	server = &service.Server{
		Backend: h, Bounds: bounds, Genv: "test", Now: time.Now,
		Username: func(context.Context, snapshot.UID) snapshot.Username { return "somebody" }, Proc: h.proc,
		Lacks: h.proc.AllAccounts().Lacks, Run: filepath.Dir(h.socket), Reservations: h.reserves,
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, listener) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return server, stop
}

func (h *host) client() service.Client { return service.Client{Path: h.socket} }

func (h *host) files(t testing.TB) state.Files {
	t.Helper()
	return proctest.Try(h.store.Read(t.Context())).OK(t)
}

// ask has a user send changes, and returns what each came to, a line each.
func (h *host) ask(t *testing.T, uid int, changes ...string) []string {
	t.Helper()
	output := proctest.Output(t, child(t, uid, "ask", append([]string{h.socket}, changes...)...))
	return strings.Split(strings.TrimSpace(output), "\n")
}

// askChild is a child: SOCKET CHANGE…, prints what each change came to. PID in a change is its own.
func askChild(args []string) error {
	client := service.Client{Path: args[0]}
	for _, text := range args[1:] {
		type unchecked change.Change
		var c unchecked
		text = strings.ReplaceAll(text, "PID", strconv.Itoa(os.Getpid()))
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			return err
		}
		result, err := client.Change(context.Background(), change.Change(c))
		if err != nil {
			fmt.Println("error:", strings.ReplaceAll(err.Error(), strconv.Itoa(os.Getpid()), "PID"))
			continue
		}
		fmt.Println("now", result.Now)
	}
	return nil
}

// floodChild is a child: SOCKET EVERY, asks 10 times at once for a change every so often, until it is killed.
func floodChild(args []string) error {
	every, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	for range 10 {
		go func() {
			for {
				time.Sleep(every)
				conn, err := net.Dial("unix", args[0])
				if err != nil {
					continue
				}
				fmt.Fprintf(conn, `{"version":1,"change":{"enter":{"eid":"flood","pid":%d}}}`+"\n", os.Getpid())
				_, _ = conn.Read(make([]byte, 4096))
				_ = conn.Close()
			}
		}()
	}
	select {}
}

// sitChild is a child: SOCKET N REQUEST, opens N connections, asks on each, and holds them without reading.
func sitChild(args []string) error {
	limit := syscall.Rlimit{}
	_ = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	limit.Cur = limit.Max
	_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	open := make([]net.Conn, 0, n)
	for len(open) < n {
		conn, err := net.Dial("unix", args[0])
		if errors.Is(err, syscall.EAGAIN) {
			continue
		}
		if err != nil {
			return fmt.Errorf("after %d connections: %w", len(open), err)
		}
		_, _ = conn.Write([]byte(args[2])) // it may have been refused
		open = append(open, conn)
	}
	fmt.Println("sitting")
	time.Sleep(time.Hour) // not pause(2), which Go's own signals end; it is killed
	return nil
}

// connectChild is a child: it connects its standard input to SOCKET, and ends.
func connectChild(args []string) error {
	return syscall.Connect(0, &syscall.SockaddrUnix{Name: args[0]})
}

// tokenChild is a child: SOCKET EID prints a token, SOCKET EID TOKEN redeems one.
func tokenChild(args []string) error {
	client := service.Client{Path: args[0]}
	if len(args) == 3 {
		holder, err := client.Redeem(context.Background(), args[2])
		if err == nil {
			fmt.Printf("uid %d eid %s\n", holder.UID, holder.EID)
		}
		return err
	}
	text, err := client.Token(context.Background(), snapshot.EnvID(args[1]))
	fmt.Println(text)
	return err
}
