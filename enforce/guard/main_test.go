package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const alice, bob = snapshot.UID(4001), snapshot.UID(4002)

// pins is what outlives the processes of a machine: the guard in its kernel. It fails on calls that no Keeper may make.
type pins struct {
	t  testing.TB
	mu sync.Mutex

	attached bool
	owner    *memoryKernel // who has it open
	guarded  Minors
	allowed  map[snapshot.UID]Minors
	control  Control
	until    time.Time
	events   chan DeviceOpen
	openErr  error
	fullErr  error
	renewing func() // called once before the control is set
}

func (p *pins) open() (Kernel, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.openErr != nil {
		return nil, p.openErr
	}
	if p.owner != nil {
		p.t.Error("two Keepers have the guard open")
	}
	if !p.attached {
		p.attached, p.allowed, p.control, p.guarded, p.until = true, map[snapshot.UID]Minors{}, Control{}, Minors{}, time.Time{}
	}
	p.owner = &memoryKernel{p}
	return p.owner, nil
}

func (p *pins) remove() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attached = false
	return nil
}

// may says whether a user may open a minor at this moment, as the program decides.
func (p *pins) may(uid snapshot.UID, minor int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.attached || time.Now().After(p.until) || p.control.Mode != Enforce || uid < p.control.FirstUID ||
		!p.guarded.Has(minor) || p.allowed[uid].Has(minor)
}

// memoryKernel is a Kernel over pins.
type memoryKernel struct{ *pins }

// use begins a call; the caller unlocks.
func (k *memoryKernel) use() error {
	k.mu.Lock()
	switch {
	case k.owner != k:
		k.t.Error("a Keeper that doesn't have the guard uses it")
	case !k.attached:
		return fmt.Errorf("gone: %w", ErrRemoved)
	}
	return nil
}

func (k *memoryKernel) SetMinors(guarded Minors) error {
	err := k.use()
	defer k.mu.Unlock()
	if err == nil {
		k.guarded = guarded
	}
	return err
}

func (k *memoryKernel) SetAllowed(allowed map[snapshot.UID]Minors) error {
	err := k.use()
	defer k.mu.Unlock()
	if err != nil {
		return err
	}
	k.allowed = maps.Clone(allowed)
	return k.fullErr
}

func (k *memoryKernel) SetControl(c Control) error {
	k.mu.Lock()
	renewing := k.renewing
	k.renewing = nil
	k.mu.Unlock()
	if renewing != nil {
		renewing()
	}
	err := k.use()
	defer k.mu.Unlock()
	if err == nil {
		k.control, k.until = c, time.Now().Add(c.Lease)
	}
	return err
}

func (k *memoryKernel) State() (KernelState, error) {
	err := k.use()
	defer k.mu.Unlock()
	c := k.control
	c.Lease = max(0, time.Until(k.until))
	return KernelState{Control: c, Dir: "/sys/fs/bpf/genv", Allowed: maps.Clone(k.allowed)}, err
}

func (k *memoryKernel) Events(ctx context.Context, handle func(DeviceOpen)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e := <-k.events:
			handle(e)
		}
	}
}

func (k *memoryKernel) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.owner == k {
		k.owner = nil
	}
	return nil
}

// host is a GPU host with four devices, of which index i has minor 3-i.
type host struct {
	testing.TB
	pins
	run, state, veto string
	owned            bool

	mu       sync.Mutex
	owners   map[snapshot.PID]snapshot.UID
	minors   []int
	hang     chan struct{} // the state files can't be read until it is closed
	readErr  error
	placeErr error // it is unknown where the state files are
	doubt    func(*state.Files)
	denied   []Denial
}

func newHost(t testing.TB) *host {
	dir := t.TempDir()
	h := &host{
		TB: t, run: filepath.Join(dir, "run"), state: filepath.Join(dir, "state"), veto: filepath.Join(dir, "etc", "guard.off"),
		owners: map[snapshot.PID]snapshot.UID{101: alice, 102: bob}, minors: []int{3, 2, 1, 0},
	}
	h.t, h.events = t, make(chan DeviceOpen, 100)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "etc"), 0o755))
	h.write(nil)
	return h
}

// write replaces both state files: by user, the devices that her environment is attached to.
func (h *host) write(attached map[snapshot.UID][]snapshot.DeviceIndex) {
	h.Helper()
	files := h.files(attached)
	require.NoError(h, os.MkdirAll(h.state, 0o777))
	lock := proctest.Try(os.OpenFile(filepath.Join(h.state, "genv.lock"), os.O_RDWR|os.O_CREATE, 0o666)).OK(h)
	defer lock.Close()
	require.NoError(h, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	for _, file := range []state.File{state.Envs, state.Devices} {
		data := proctest.Try(files.Encode(file)).OK(h)
		path := filepath.Join(h.state, file.String())
		require.NoError(h, os.WriteFile(path+".new", data, 0o666))
		require.NoError(h, os.Rename(path+".new", path))
	}
}

func (h *host) files(attached map[snapshot.UID][]snapshot.DeviceIndex) *state.Files {
	files := &state.Files{}
	for i := range 4 {
		files.Devices = append(files.Devices, snapshot.Device{Index: snapshot.DeviceIndex(i), TotalMemory: snapshot.MiB(1024)})
	}
	at := snapshot.DateOf(time.Now())
	for uid, indices := range attached {
		eid := snapshot.EnvID(fmt.Sprint("e", uid))
		files.Environments = append(files.Environments, snapshot.Environment{EID: eid, UID: uid, Creation: at, PIDs: []snapshot.PID{snapshot.PID(uid - 3900)}})
		for _, index := range indices {
			d := &files.Devices[index]
			d.Attachments = append(d.Attachments, snapshot.Attachment{EID: eid, Time: at})
		}
	}
	return files
}

// Place is for a Keeper.
func (h *host) Place() (string, bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state, h.owned, h.placeErr
}

// Read is for a Keeper, without a cleanup.
func (h *host) Read(ctx context.Context) (state.Files, error) {
	h.mu.Lock()
	hang, err, doubt := h.hang, h.readErr, h.doubt
	h.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		return state.Files{}, err
	}
	files, err := disk.New(h.state, disk.Config{System: alive{system.New(proc.FS{}, nss.Passwd{})}}).Read(ctx)
	if doubt != nil {
		doubt(&files)
	}
	return files, err
}

// alive says that all processes of the tests live.
type alive struct{ system.System }

func (alive) Process(snapshot.PID) system.ProcessStatus {
	return system.ProcessStatus{Liveness: system.Alive}
}

func (h *host) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

func (h *host) keeper() *Keeper {
	return &Keeper{
		RunDir: h.run, Veto: h.veto, Open: h.open, Remove: h.remove, Place: h.Place, Read: h.Read,
		Process: func(pid snapshot.PID) system.ProcessStatus {
			h.mu.Lock()
			defer h.mu.Unlock()
			uid, ok := h.owners[pid]
			if !ok {
				return system.ProcessStatus{Liveness: system.Gone}
			}
			return system.ProcessStatus{Liveness: system.Alive, Owner: &uid}
		},
		Devices: func() ([]hardware.BusDevice, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			var list []hardware.BusDevice
			for i, minor := range h.minors {
				list = append(list, hardware.BusDevice{Index: snapshot.DeviceIndex(i), UUID: snapshot.GPUUUID(fmt.Sprint("GPU-", i)), Minor: &minor})
			}
			return list, nil
		},
		UserID: func(_ context.Context, name snapshot.Username) (snapshot.UID, bool, error) {
			switch name {
			case "bob":
				return bob, true, nil
			case "unknown":
				return 0, false, errors.New("the directory doesn't answer")
			}
			return 0, false, nil
		},
		Denied: func(d Denial) { h.set(func() { h.denied = append(h.denied, d) }) },
		Log:    zerolog.New(io.Discard),
	}
}

// keep runs a Keeper until the returned function is called.
func (h *host) keep(k *Keeper) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(h, <-ended)
	})
	h.Cleanup(stop)
	return stop
}

// give gives an order.
func (h *host) give(m Mode, lease time.Duration, change ...func(*Order)) Order {
	h.Helper()
	o := Order{Mode: m, LeaseMS: lease.Milliseconds(), By: "the test"}
	for _, c := range change {
		c(&o)
	}
	now := proctest.Try(Now()).OK(h)
	g := proctest.Try(GiveOrder(h.run, o, "", now)).OK(h)
	return g
}

// deny runs a Keeper with an order to deny, and waits for its first denial.
func (h *host) deny(lease time.Duration) (given Order, stop func()) {
	h.Helper()
	given, stop = h.give(Enforce, lease), h.keep(h.keeper())
	h.soon("the first denial", h.mayNot(bob, 0))
	return given, stop
}

// soon waits until something is true; two seconds is what everything may take.
func (h *host) soon(what string, is func() bool) {
	h.Helper()
	deadline := time.Now().Add(10 * time.Second) // on a loaded machine
	for !is() {
		if time.Now().After(deadline) {
			data, _ := os.ReadFile(filepath.Join(h.run, "guard.json"))
			h.Fatalf("not within 10 s: %s\n%s", what, data)
		}
		time.Sleep(time.Millisecond)
	}
}

func (h *host) may(uid snapshot.UID, index snapshot.DeviceIndex) func() bool {
	return func() bool { return h.pins.may(uid, 3-int(index)) }
}

func (h *host) mayNot(uid snapshot.UID, index snapshot.DeviceIndex) func() bool {
	return func() bool { return !h.pins.may(uid, 3-int(index)) }
}

// status is guard.json.
func (h *host) status() (s Status) {
	if data, err := os.ReadFile(filepath.Join(h.run, "guard.json")); err == nil {
		_ = json.Unmarshal(data, &s)
	}
	return s
}

// says waits for a mode in guard.json.
func (h *host) says(m Mode) (s Status) {
	h.Helper()
	h.soon("guard.json says "+m.String(), func() bool { s = h.status(); return s.Schema != "" && s.Mode == m })
	return s
}
