package inprocess

import "time"

// Fault is a way in which a host fails; see Server.Inject. The figures are exact,
// so that a test sees the same on every run.
type Fault func(*faults)

// faults is what a host does wrong.
type faults struct {
	down, silent, noAuth, noExit bool

	before             []byte
	flood, floodStderr int64
	delay              time.Duration
	// Once breakAt bytes of a command's stdout are sent, unless it is negative, the
	// connection freezes or is closed.
	breakAt int64
	freezes bool
}

func healthy() faults { return faults{breakAt: -1} }

// Down refuses every connection: no server listens. Open connections stay open.
func Down() Fault { return func(f *faults) { f.down = true } }

// Silent accepts connections and never sends a byte.
func Silent() Fault { return func(f *faults) { f.silent = true } }

// AuthRefused accepts no key.
func AuthRefused() Fault { return func(f *faults) { f.noAuth = true } }

// NoExit ends each command without an exit status, as a killed sshd does.
func NoExit() Fault { return func(f *faults) { f.noExit = true } }

// Before puts bytes on stdout ahead of what the command writes, as a noisy
// shell start-up file does.
func Before(garbage string) Fault { return func(f *faults) { f.before = []byte(garbage) } }

// Flood puts n bytes of seeded noise on stdout before the command's output.
func Flood(n int64) Fault { return func(f *faults) { f.flood = n } }

// FloodStderr puts n bytes of seeded noise on stderr before the command's own.
func FloodStderr(n int64) Fault { return func(f *faults) { f.floodStderr = n } }

// DropAfter closes the connection once n bytes of a command's stdout are sent;
// with 0 as soon as it writes anything or ends.
func DropAfter(n int64) Fault { return func(f *faults) { f.breakAt, f.freezes = n, false } }

// FreezeAfter neither reads nor writes on the connection any more once n bytes
// of a command's stdout are sent, and keeps it open, as a host that hangs.
func FreezeAfter(n int64) Fault { return func(f *faults) { f.breakAt, f.freezes = n, true } }

// Slow begins each command after a delay.
func Slow(delay time.Duration) Fault { return func(f *faults) { f.delay = delay } }
