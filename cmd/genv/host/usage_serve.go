package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	keeper "github.com/seed-3119e985/genv/cmd/genv/guard"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/local/ending"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// devicesFor is how long a list of devices is reused, unless a process is on a device that isn't in it.
const devicesFor = time.Minute

// tokensEvery is how often tokens are exchanged: of two conversations with a host, at least the later one sees both.
const tokensEvery = 10 * time.Second

func (p *hostCommands) usageServe(c *cli.Context, token string, idle time.Duration) error {
	if err := endWithParent(os.Getppid()); err != nil {
		return err
	}
	host := p.openHost()
	defer host.SMI.Keep(c.Context)()
	host.Machine.DeviceListTTL, host.Machine.Types = devicesFor, new(nvidiasmi.Types)
	host.Machine.StateFiles = disk.NewCache(host.Store)
	debug.SetGCPercent(400) // a host needs CPU time more than some megabytes
	enforcement.CoarseTimers()
	goruntime.GOMAXPROCS(1) // steps are sequential: waking a second processor for each would cost more
	host.log = p.Logger(c)
	defer host.stopWatching()
	answers := &agent.Answers{Backend: host, Event: host.Wait}
	server := &agent.Responder{
		Token: token, ReadToken: !c.IsSet("token"), Idle: idle, Handler: answers.Handle,
		Greeting: agent.NewGreeting(p.Version, agent.CapabilityEvents), Replaced: replaced,
	}
	answers.Try = host.try
	allowance := &allowances{pass: host.Service.Allow}
	defer allowance.close()
	answers.Allow = func(a *service.Allowance) {
		if allowance.note(a); !host.withoutService {
			allowance.renew(nil)
		}
	}
	if f := p.openFence(host); f != nil {
		var tokens recent[[]string]
		answers.Fence, answers.Tokens = f, func(own string) ([]string, error) {
			if host.stateFolder == "" {
				return nil, nil
			}
			return tokens.get(tokensEvery, func() ([]string, error) {
				return fence.Tokens(disk.RunDir(p.Getenv), host.stateFolder, own, p.Now())
			})
		}
		server.Greeting.Capabilities = append(server.Greeting.Capabilities, agent.CapabilityFence, agent.RequestActing)
	}
	if os.Geteuid() == 0 {
		g := &guarded{dir: disk.RunDir(p.Getenv), now: guard.Now, log: host.log, keep: func(ctx context.Context) {
			keepTrying(ctx, host.log, keeper.NewKeeper(&p.Program, host.log).Run)
		}}
		defer g.close()
		answers.Guard = g.Order
		server.Greeting.Capabilities = append(server.Greeting.Capabilities, agent.RequestGuard)
	}
	if !host.privileged {
		server.Handler, server.Greeting = agent.ViewHandler(host.view), agent.NewViewGreeting(p.Version)
	}
	in, restoreIn := polled(p.In)
	defer restoreIn()
	out, restoreOut := polled(p.Out)
	defer restoreOut()
	err := server.Serve(c.Context, in, out)
	if errors.Is(err, agent.ErrIdle) || errors.Is(err, agent.ErrReplaced) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// polled makes Go's runtime poll a pipe or a socket, so that no thread blocks in a read or write and must wake another
// for the next step. Other files are unchanged. restore undoes it for other users of the file.
func polled[F any](f F) (_ F, restore func()) {
	file, ok := any(f).(*os.File)
	if !ok {
		return f, func() {}
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return f, func() {}
	}
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return f, func() {}
	}
	_ = unix.SetNonblock(fd, true) // on error it is not polled
	own := os.NewFile(uintptr(fd), file.Name())
	return any(own).(F), func() {
		_ = unix.SetNonblock(fd, false)
		_ = own.Close()
	}
}

func replaced() bool {
	file, err := os.Readlink("/proc/self/exe")
	return err == nil && strings.HasSuffix(file, " (deleted)")
}

// endWithParent makes the kernel send SIGTERM when the parent (sudo, or the connection's sshd) dies: this process must
// not outlive its connection. It fails if the parent died before prctl(2).
func endWithParent(parent int) error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0); err != nil {
		return fmt.Errorf("ask the kernel for the parent's death: %w", err)
	}
	if os.Getppid() != parent {
		return fmt.Errorf("the parent, process %d, has ended", parent)
	}
	return nil
}

// Snapshot implements agent.Backend.
func (h *host) Snapshot(ctx context.Context, age local.Age) ([]byte, error) {
	age.Measured = cmp.Or(age.Measured, devicesFor)
	now, err := h.forController(h.look(ctx, age))
	if err != nil {
		return nil, err
	}
	now.Boot, now.Skew = time.Time{}, nil        // not encoded
	now.Processes = slices.Concat(now.Processes) // nil for none: DeepEqual is fast with few pointers
	if len(now.Processes) > 0 || h.encoded == nil || !reflect.DeepEqual(now, h.last) {
		h.encoded, err = snapshot.EncodeNative(now)
	}
	h.last = now // also an equal one: it shares more with the next look
	return h.encoded, err
}

// Execute implements agent.Backend.
func (h *host) Execute(ctx context.Context, o order.Order, asker ending.Authority) (e agent.Execution, _ error) {
	e.Outcomes, e.Warnings = h.carryOut(ctx, o, asker, func(line string) { e.Lines = append(e.Lines, line) })
	return e, nil
}

// Notify implements agent.Backend.
func (h *host) Notify(messages []agent.Message) ([]agent.Receipt, error) {
	return h.notify(context.Background(), messages), nil
}

func (h *host) view(ctx context.Context, part string) ([]byte, error) {
	document, _, err := h.document(ctx, part)
	return document, err
}

// allowances pass what the policy allows to root's service, which tells people. If the state isn't root's, they pass it
// to none.
type allowances struct {
	pass func(context.Context, service.Allowance) error

	passing sync.WaitGroup
	mu      sync.Mutex
	busy    bool
	last    *service.Allowance
	at      time.Time          // when last was passed on
	missed  *service.Allowance // not yet taken by the service; nil for none
}

const passWithin = 2 * time.Second // limit for one call of pass

// renew passes on an allowance that is new, or older than a quarter of its time; nil is the last one. It doesn't wait
// for the service, and retries at the next call.
func (a *allowances) renew(next *service.Allowance) {
	a.note(next)
	a.mu.Lock()
	defer a.mu.Unlock()
	if next = a.missed; next == nil || a.busy {
		return
	}
	a.missed = nil
	holds := time.Since(a.at) < time.Duration(next.ForMS)*time.Millisecond/4
	if holds && reflect.DeepEqual(next, a.last) {
		return
	}
	a.busy, a.last, a.at = true, next, time.Now()
	a.passing.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), passWithin)
		defer cancel()
		err := a.pass(ctx, *next)
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.busy = false; err != nil { // retry: the service may start later
			a.last, a.missed = nil, cmp.Or(a.missed, next)
		}
	})
}

// note keeps an allowance for the next renewal, so that a service that starts doesn't learn an earlier one.
func (a *allowances) note(next *service.Allowance) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.missed = cmp.Or(next, a.missed)
}

func (a *allowances) close() { a.passing.Wait() }
