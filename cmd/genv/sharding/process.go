package sharding

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seed-3119e985/genv/remote/agent"
)

// stuckAfter is how long a process may not say that it works before it is killed. It says so
// twice in this time (sd_notify(3), WATCHDOG_USEC).
const stuckAfter = 2 * time.Minute

// endsWithin is how long a process that was asked to end may take: it sends no signs of life any
// more, and waits for its reports. The processes that these end have up to MaxGrace for it.
const endsWithin = 2 * agent.MaxGrace

// process is a running controller of a shard.
type process struct {
	shard   int
	dir     string // for its socket
	cmd     *exec.Cmd
	notices *net.UnixConn
	started time.Time
	ended   chan error // has the error of Wait

	sight    sight        // of its hosts
	heard    atomic.Bool  // it has sent a notice, so it handles SIGHUP: before, that would end it
	reread   atomic.Bool  // it is to get SIGHUP as soon as it handles it
	lastSign atomic.Int64 // when it last said that it works, in nanoseconds since started
	stopping bool         // it was asked to end
	asked    time.Time    // when it was
	killed   bool         // it was killed
	blind    bool         // it was logged that no host answers
}

// output is where processes print, a line at a time.
type output struct {
	mu     sync.Mutex
	to     io.Writer
	prefix bool // name the shard in front of each line
}

// start starts the controller of a shard. The caller must be locked to its thread as long as
// the process is to live: it ends when that thread does, as with kill -9 of this process.
func (r *run) start(shard int) (*process, error) {
	// Each process has a folder of its own: systemd-tmpfiles removes one in /tmp that was empty for days.
	dir, err := os.MkdirTemp("", tempPrefix(r.ID))
	if err != nil {
		return nil, err
	}
	p, err := r.startIn(dir, shard)
	if err != nil {
		_ = os.RemoveAll(dir) // the error says more
	}
	return p, err
}

// tempPrefix begins the names of the folders of a controller.
func tempPrefix(id string) string {
	sum := sha256.Sum256([]byte(id))
	return fmt.Sprintf("genv-shard-%x-", sum[:6])
}

// removeLeftovers removes the folders of a run of this controller that was killed. The caller has
// locked the state folder, so no other run of it has any. What can't be removed does no harm.
func removeLeftovers(id string) {
	entries, _ := os.ReadDir(os.TempDir()) // those that were read come with an error
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.IsDir() || !strings.HasPrefix(e.Name(), tempPrefix(id)) {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == os.Geteuid() {
			_ = os.RemoveAll(filepath.Join(os.TempDir(), e.Name()))
		}
	}
}

func (r *run) startIn(dir string, shard int) (*process, error) {
	path := filepath.Join(dir, "notify")
	notices, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, err
	}
	p := &process{shard: shard, dir: dir, cmd: exec.Command(r.Program, r.Args...), notices: notices, started: time.Now(), ended: make(chan error, 1)}
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); name != "NOTIFY_SOCKET" && name != "WATCHDOG_USEC" && name != "WATCHDOG_PID" {
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	p.cmd.Env = append(p.cmd.Env, fmt.Sprintf("%s=%d", shardVariable, shard),
		fmt.Sprintf("%s=%t", againVariable, r.begun[shard]), "NOTIFY_SOCKET="+path,
		fmt.Sprintf("WATCHDOG_USEC=%d", stuckAfter.Microseconds()))
	p.cmd.Stderr = r.errors
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM} // the signals of a terminal are passed on
	out, in, err := os.Pipe()
	if err != nil {
		_ = notices.Close() // nothing came
		return nil, err
	}
	p.cmd.Stdout = in
	err = p.cmd.Start()
	_ = in.Close() // the process has its own
	if err != nil {
		_ = notices.Close()
		_ = out.Close()
		return nil, err
	}
	go func() {
		p.ended <- p.wait(r.out, out)
		r.wake()
	}()
	return p, nil
}

// printsFor is how long what a process printed may take to arrive after its end: what it started
// may still have its pipe.
const printsFor = time.Second

// wait passes on what the process prints and says, until it has ended.
func (p *process) wait(to *output, out *os.File) error {
	var work sync.WaitGroup
	work.Go(func() { to.copy(p.shard, out) })
	work.Go(p.listen)
	err := p.cmd.Wait()
	_ = out.SetReadDeadline(time.Now().Add(printsFor))
	_ = p.notices.Close() // so listen ends
	work.Wait()
	_ = out.Close()
	_ = os.RemoveAll(p.dir) // or it stays in /tmp
	return err
}

// listen reads the process's sd_notify messages.
func (p *process) listen() {
	buffer := make([]byte, 4096)
	for {
		n, err := p.notices.Read(buffer)
		if err != nil {
			return
		}
		p.lastSign.Store(int64(time.Since(p.started)))
		p.heard.Store(true)
		p.hangupIfDue()
		p.sight.note(buffer[:n], time.Now())
	}
}

// stop asks the process to end. A second request would end it at once.
func (p *process) stop() {
	if !p.stopping {
		p.stopping, p.asked = true, time.Now()
		p.signal(syscall.SIGTERM)
	}
}

// stuck reports whether the process has not said for too long that it works.
func (p *process) stuck() bool {
	limit := stuckAfter
	if p.stopping {
		limit = endsWithin
	}
	return time.Since(p.started)-time.Duration(p.lastSign.Load()) > limit
}

// hangup has the process read its configuration again, as soon as it handles SIGHUP.
func (p *process) hangup() {
	p.reread.Store(true)
	p.hangupIfDue()
}

func (p *process) hangupIfDue() {
	if p.heard.Load() && p.reread.Swap(false) {
		p.signal(syscall.SIGHUP)
	}
}

// pausedAfter is how long a turn of supervise takes at most, unless this process was stopped.
const pausedAfter = stuckAfter / 4

// ignorePause restarts the time limits of all processes if this process was itself stopped: it could
// not hear them.
func (r *run) ignorePause() {
	if r.Clock()-time.Duration(r.turned.Load()) < pausedAfter {
		return
	}
	for _, p := range r.processes {
		p.lastSign.Store(int64(time.Since(p.started)))
	}
}

// signal sends a signal; a process that has ended gets none.
func (p *process) signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// copy prints what a process prints, line by line, so that lines of several don't mix.
func (o *output) copy(shard int, from io.Reader) {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			o.print(shard, line)
		}
		if err != nil {
			return
		}
	}
}

func (o *output) print(shard int, line []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.prefix {
		line = append(fmt.Appendf(nil, "shard %d: ", shard), line...)
	}
	_, _ = o.to.Write(line) // without a reader the cycles go on, as those of one controller
}
