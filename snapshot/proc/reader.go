package proc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

var (
	// ErrStalled comes with ErrUnreadable: a file of the process did not answer in time.
	ErrStalled = errors.New("its memory does not answer")
	// ErrTooLarge comes with ErrUnreadable: the environment exceeds MaxEnviron.
	ErrTooLarge = errors.New("its environment is too large")
	// ErrNotRead comes with ErrUnreadable: a Quota is used up, and the next look continues.
	ErrNotRead = errors.New("it has not been read yet, since its user has many or slow processes")
)

// How long a file may take, and when a process that took longer is read again.
const (
	readWithin     = 400 * time.Millisecond
	againWithin    = 20 * time.Millisecond // if it took longer before
	leastWithin    = 5 * time.Millisecond
	provedWithin   = 50 * time.Millisecond // more than a large environment takes on a busy machine
	startWithin    = 5 * time.Second
	stalledFor     = time.Minute
	forgottenAfter = time.Hour // when a process that isn't read any more has certainly ended
)

// ReaderProcess reads files that the owner of a process can make large or slow (environ, cmdline, maps, fd) in another
// process, the helper: a user's file system (FUSE) can block their reader for any time. It starts the helper at first
// use, and kills one that takes too long. It is safe for concurrent use.
type ReaderProcess struct {
	// Command starts a helper: a program that calls ServeReader with its stdin and stdout.
	Command []string

	mu      sync.Mutex
	helper  *helper
	stalled map[ID]lateRead
	slow    slowReads
}

type lateRead struct {
	at     time.Time // zero if it had too little time
	helper *helper   // the killed one
}

type readRequest struct {
	Root  string             `json:"root,omitempty"`
	PID   snapshot.PID       `json:"pid"`
	Start snapshot.StartTime `json:"start"`
	Read  string             `json:"read"`
	Key   string             `json:"key,omitempty"`   // of environ, or the path of a file
	Limit int                `json:"limit,omitempty"` // of cmdline, in bytes
	Major uint32             `json:"major,omitempty"` // of nodes
	Files int                `json:"files,omitempty"`
	Left  time.Duration      `json:"left,omitempty"`
}

type readAnswer struct {
	Value []byte `json:"value,omitempty"`
	Found bool   `json:"found,omitempty"`
	Files int    `json:"files,omitempty"`
	Error string `json:"error,omitempty"`
	Kinds []int  `json:"kinds,omitempty"` // of the error: indices into kinds
}

// The files that a helper reads.
const (
	readEnviron = "environ"
	readCommand = "cmdline"
	readNodes   = "nodes"
	readOpen    = "fd"
	readFile    = "file" // of the user in Start, not of a process
)

const maxValue = 64 << 10 // of a variable: no id or path is longer

var kinds = []error{ErrGone, ErrUnreadable, ErrOverwritten, ErrTooLarge, errSpent, os.ErrPermission}

func (a *readAnswer) err() error {
	if a.Error == "" {
		return nil
	}
	var causes []error
	for _, i := range a.Kinds {
		if i >= 0 && i < len(kinds) {
			causes = append(causes, kinds[i])
		}
	}
	return text.Worded(a.Error, causes...)
}

func (h *Handle) isOther() bool { return h.fs.Reader != nil && int(h.PID) != os.Getpid() }

func (h *Handle) ask(q readRequest, within time.Duration) (readAnswer, error) {
	if h.Quota != nil { // each further slow process of an account gets less time
		within = min(within, h.Quota.left(maxReadTime)/2)
		defer h.Quota.spend()()
	}
	stat, err := h.Stat()
	if err != nil {
		return readAnswer{}, err
	}
	q.Root, q.PID, q.Start = h.fs.Root, h.PID, stat.Start
	a, err := h.fs.Reader.ask(q, within)
	if err != nil {
		return a, fmt.Errorf("%w: PID %d: %w", ErrUnreadable, h.PID, err)
	}
	return a, a.err()
}

// ask kills a helper that doesn't answer in time and returns ErrStalled, also for stalledFor afterwards and until that
// helper has ended. ErrNotRead means that there is no time.
func (r *ReaderProcess) ask(q readRequest, within time.Duration) (readAnswer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := ID{q.PID, q.Start}
	s, known := r.stalled[key]
	wasSlow := known && !s.at.IsZero()
	if wasSlow {
		within = min(within, againWithin)
	}
	switch {
	case wasSlow && (within < leastWithin || !s.helper.hasEnded() || time.Since(s.at) < stalledFor):
		return readAnswer{}, ErrStalled
	case within < leastWithin, known && !s.helper.hasEnded():
		return readAnswer{}, ErrNotRead
	}
	const attempts = 2 // the helper may have been killed
	var a readAnswer
	var err error
	for range attempts {
		if r.helper == nil {
			if r.helper, err = startHelper(r.Command); err != nil {
				return a, err
			}
		}
		a, err = r.helper.ask(q, within)
		if errors.Is(err, ErrStalled) && !wasSlow && r.helper.waits() {
			a, err = r.helper.answer(within) // this process may have been slow
		}
		if err == nil {
			delete(r.stalled, key)
			return a, nil
		}
		stalled := r.helper
		waits := stalled.waits()
		stalled.kill()
		r.helper = nil
		switch {
		case !errors.Is(err, ErrStalled):
		case !wasSlow && (within < provedWithin || !waits): // this machine may be busy
			r.note(key, lateRead{helper: stalled})
			return a, ErrNotRead
		default:
			r.note(key, lateRead{time.Now(), stalled})
			return a, err
		}
	}
	return a, err
}

func (r *ReaderProcess) note(key ID, s lateRead) {
	if r.stalled == nil {
		r.stalled = map[ID]lateRead{}
	}
	for other, before := range r.stalled {
		if before.helper.hasEnded() && time.Since(before.at) >= forgottenAfter {
			delete(r.stalled, other)
		}
	}
	r.stalled[key] = s
}

// Try passes another helper to use, which may end it. It also fails if the helper doesn't start.
func (r *ReaderProcess) Try(use func(snapshot.PID) error) error {
	h, err := startHelper(r.Command)
	if err != nil {
		return fmt.Errorf("processes can't be read: %w", err)
	}
	defer h.kill()
	return use(snapshot.PID(h.cmd.Process.Pid)) //nolint:gosec // a PID fits
}

// Close ends the helper.
func (r *ReaderProcess) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.helper != nil {
		r.helper.kill()
		r.helper = nil
	}
}

type helper struct {
	cmd     *exec.Cmd
	in      io.Closer
	to      *json.Encoder
	answers chan readAnswer
	ended   chan struct{}
}

const selfExe = "/proc/self/exe" // the file of this program

// program replaces selfExe by this program's path for sudo's log_subcmds, unless another file is there by now.
func program(path string) string {
	named, err := os.Executable()
	there, statErr := os.Stat(named)
	running, selfErr := os.Stat(selfExe)
	if path == selfExe && errors.Join(err, statErr, selfErr) == nil && os.SameFile(there, running) {
		return named
	}
	return path
}

func startHelper(command []string) (*helper, error) {
	cmd := exec.Command(program(command[0]), command[1:]...)
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true} // Ctrl-C is for the parent
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	h := &helper{cmd, in, json.NewEncoder(in), make(chan readAnswer, 1), make(chan struct{})}
	go func() {
		defer close(h.ended)
		from := json.NewDecoder(out)
		for {
			var a readAnswer
			if from.Decode(&a) != nil {
				break
			}
			h.answers <- a
		}
		close(h.answers)
		_ = cmd.Wait() // it was killed
	}()
	if _, err := h.answer(startWithin); err != nil {
		h.kill()
		return nil, fmt.Errorf("%w (%s)", errHelper, cmd.Path) // not ErrStalled: no process was slow
	}
	return h, nil
}

var errHelper = errors.New("the process that reads it has ended, or does not start")

func (h *helper) ask(q readRequest, within time.Duration) (readAnswer, error) {
	if h.to.Encode(q) != nil {
		return readAnswer{}, errHelper
	}
	return h.answer(within)
}

// answer waits for an answer. The first one means that the helper has started.
func (h *helper) answer(within time.Duration) (readAnswer, error) {
	select {
	case a, ok := <-h.answers:
		if !ok {
			return a, errHelper
		}
		return a, nil
	case <-time.After(within):
		return readAnswer{}, ErrStalled
	}
}

// waits says whether the helper waits for the kernel, not for its turn on a busy machine.
func (h *helper) waits() bool {
	return threadsIn('R', fmt.Sprintf("/proc/%d/task", h.cmd.Process.Pid)) == 0
}

func (h *helper) kill() {
	_ = h.cmd.Process.Kill() // or it has ended
	_ = h.in.Close()
}

func (h *helper) hasEnded() bool { return isDone(h.ended, 0) }

// ServeReader is the helper: it answers requests until in ends.
func ServeReader(in io.Reader, out io.Writer) error {
	from, to := json.NewDecoder(in), json.NewEncoder(out)
	if err := to.Encode(readAnswer{}); err != nil {
		return err
	}
	for {
		var q readRequest
		if err := from.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		a, err := q.run()
		if err != nil {
			a.Error = err.Error()
			for i, kind := range kinds {
				if errors.Is(err, kind) {
					a.Kinds = append(a.Kinds, i)
				}
			}
		}
		if err := to.Encode(a); err != nil {
			return err
		}
	}
}

func (q *readRequest) run() (a readAnswer, err error) {
	if q.Read == readFile {
		a.Found, err = hasFile(q.Key, snapshot.UID(q.Start)) //nolint:gosec // it was one
		return a, err
	}
	h, err := FS{Root: q.Root}.Open(q.PID)
	if err != nil {
		return a, err
	}
	defer h.Close()
	if stat, err := h.Stat(); err != nil || stat.Start != q.Start {
		return a, errors.Join(err, fmt.Errorf("%w: PID %d", ErrGone, q.PID))
	}
	switch q.Read {
	case readEnviron:
		var value string
		value, a.Found, err = h.environ(q.Key)
		a.Value = []byte(value[:min(len(value), maxValue)])
	case readCommand:
		a.Value, err = readAt(h.dir, readCommand, q.Limit)
	case readNodes, readOpen:
		search := nodeSearch{major: q.Major, files: q.Files, until: time.Now().Add(q.Left)}
		a.Found, err = search.look(h.dir, q.Read)
		a.Files = search.files
	}
	return a, err
}
