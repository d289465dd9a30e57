package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/localhost"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/container/oci"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Container engines call these hidden commands. They start without reading the list of commands.
//
//	genv container-runtime --real /usr/sbin/runc -- create --bundle B ID
//
// becomes runc with exec(2). For `create` and `run` of a container that asks for GPUs, or has a token of root's
// service, it first attaches devices (see package grant) and changes the bundle's config.json.
//
// A container that asks for no GPU always starts, whatever fails here. One that asks for GPUs doesn't, and the error
// says why.
const (
	RuntimeCommand = "container-runtime"
	HookCommand    = "container-hook"
)

type runtime struct {
	command.Program
	host *localhost.Host
	real string // the real runtime
	*runcCall
	exec func(path string, argv, environ []string) error // as syscall.Exec
}

// ContainerRuntime replaces this process with the real runtime. args are --real PATH (default: runc in PATH), `--`, and
// the real runtime's arguments. It returns the exit status on failure.
func ContainerRuntime(ctx context.Context, p command.Program, args []string) int {
	own, line := ownFlags(args)
	r := &runtime{Program: p, runcCall: parseCall(line), exec: syscall.Exec}
	var err error
	if r.real, err = realRuntime(own["real"]); err == nil {
		err = r.start(ctx)
	}
	r.report(err)
	return command.ExitFailed
}

func ownFlags(args []string) (own map[string]string, line []string) {
	return takeFlags(args, []string{"real", "instead-of"}, false)
}

func realRuntime(given string) (string, error) {
	if filepath.IsAbs(given) {
		return given, nil
	}
	path, err := exec.LookPath(cmp.Or(given, "runc"))
	if err != nil {
		return "", fmt.Errorf("find the real container runtime: %w: correct --real in dockerd's daemon.json", err)
	}
	return filepath.Abs(path)
}

func (r *runtime) start(ctx context.Context) error {
	environ := os.Environ()
	var prepared *claimed
	if r.starts() {
		var err error
		if prepared, err = r.prepare(ctx); err != nil {
			return err
		}
	}
	if prepared != nil { // this process is in the environment until the container's init is
		environ = append(environ, snapshot.ClaimVariable+"="+string(prepared.EID))
	}
	err := r.exec(r.real, append([]string{r.real}, r.args...), environ)
	if prepared != nil {
		prepared.undo(ctx)
	}
	return fmt.Errorf("start the real container runtime %s: %w: correct --real in dockerd's daemon.json", r.real, err)
}

// prepare gives a container its devices; nil if it starts unchanged. After an error it must not start.
func (r *runtime) prepare(ctx context.Context) (*claimed, error) {
	config, err := oci.Read(r.bundle)
	switch {
	case errors.Is(err, folder.ErrUnsafe), errors.Is(err, oci.ErrGarbled):
		return nil, err // no engine writes such a file
	case err != nil: // the real runtime reports it
		return nil, nil
	}
	request, err := grant.Asked(config, strings.HasPrefix(filepath.Base(r.real), "nvidia-container-runtime"))
	if err != nil {
		return nil, err
	}
	switch {
	case request.AsksForGPUs() && !container.IsID(r.id):
		return nil, notDockers(r.id)
	case request.AsksForGPUs():
		return r.give(ctx, config, request)
	case request.Token == "":
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	prepared, err := r.give(ctx, config, request)
	if err != nil { // it asks for no GPU
		r.Warn("genv: the container runs without an environment: " + err.Error())
	}
	return prepared, nil
}

func (r *runtime) give(ctx context.Context, config *oci.ContainerConfig, request grant.GPURequest) (*claimed, error) {
	r.host = localhost.Open(r.Program)
	prepared, err := r.claim(ctx, request)
	if err != nil {
		return nil, err
	}
	if err := prepared.writeConfig(config); err != nil {
		prepared.undo(ctx)
		return nil, err
	}
	return prepared, nil
}

func notDockers(id string) error {
	return fmt.Errorf("%w: the container's id %s isn't one of Docker's", grant.ErrRefused, text.Quoted(id, 60))
}

func (c *runcCall) engineName() string {
	bundle, err := filepath.Abs(c.bundle)
	switch {
	case err != nil:
		return ""
	case strings.Contains(bundle, "/moby/"):
		return "docker"
	case strings.Contains(bundle, "/io.containerd."):
		return "containerd"
	case strings.Contains(bundle, "/overlay-containers/"), strings.Contains(bundle, "/vfs-containers/"):
		return "podman"
	}
	return ""
}

// report also writes to the log from which the engine takes the message of `docker run`.
func (r *runtime) report(err error) {
	message := "genv: " + text.PrintableLines(err.Error())
	fmt.Fprintln(r.Err, message)
	if r.log == "" {
		return
	}
	line, _ := json.Marshal(map[string]any{"level": "error", "msg": message, "time": r.Now().UTC()}) // as runc(8)
	file, err := os.OpenFile(r.log, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return
	}
	_, _ = file.Write(append(line, '\n')) // stderr has it, too
	_ = file.Close()
}

const (
	hookStart = "start" // the container's init exists, its program doesn't run yet
	hookStop  = "stop"  // the container has ended
)

type hookCall struct {
	command.Program
	host *localhost.Host
	hookOrder
	state struct { // of the container (OCI runtime specification, "State")
		ID  string       `json:"id"`
		PID snapshot.PID `json:"pid"` // of its init; 0 if it has ended
	}
}

// ContainerHook is called by the real runtime at a container's start and end. It returns the exit status: at the start,
// any but 0 keeps the container from starting.
func ContainerHook(ctx context.Context, p command.Program, args []string) int {
	h := &hookCall{Program: p}
	err := h.run(ctx, args)
	if err == nil {
		return command.ExitOK
	}
	fmt.Fprintln(p.Err, "genv:", text.PrintableLines(err.Error()))
	if len(args) > 0 && args[0] == hookStart && !h.GPUs { // it asks for no GPU
		return command.ExitOK
	}
	return command.ExitFailed
}

func (h *hookCall) run(ctx context.Context, args []string) error {
	if len(args) != 2 || args[0] != hookStart && args[0] != hookStop {
		return errors.New("the container runtime of genv adds this hook to containers: it isn't for people")
	}
	if err := json.Unmarshal([]byte(args[1]), &h.hookOrder); err != nil {
		return fmt.Errorf("the hook's order: %w", err)
	}
	if err := json.NewDecoder(io.LimitReader(h.In, 1<<20)).Decode(&h.state); err != nil {
		return fmt.Errorf("the container's state: %w", err)
	}
	if !container.IsID(h.state.ID) {
		return notDockers(h.state.ID)
	}
	h.host = localhost.Open(h.Program)
	if args[0] == hookStop {
		return h.stop(ctx)
	}
	return h.start(ctx)
}

func (h *hookCall) start(ctx context.Context) error {
	stat, err := h.host.Machine.Proc.Stat(h.state.PID)
	if err != nil {
		return fmt.Errorf("the container's init: %w", err)
	}
	r := h.Record
	r.ID, r.StartedAt, r.PID, r.Start = h.state.ID, h.Now().UTC(), h.state.PID, stat.Start
	if !h.Registered {
		return container.WriteRecord(h.Run, r)
	}
	owner := grant.Nobody
	if h.UID != nil {
		owner = *h.UID
	}
	return h.host.Store.Update(ctx, func(f *state.Files) error {
		env := f.Environment(h.EID)
		if env == nil || env.UID != owner { // another user may have reused the id
			return fmt.Errorf("environment %s has ended before the container started", text.Shown(string(h.EID)))
		}
		if err := f.Activate(state.Activation{
			EID: env.EID, UID: env.UID, Username: env.Username, PID: h.state.PID, At: snapshot.DateOf(h.Now()),
		}); err != nil {
			return err
		}
		return container.WriteRecord(h.Run, r)
	})
}

// stop gives back what the container had. If it doesn't run, as after SIGKILL, the next reader of the state files
// notices that the init has ended.
func (h *hookCall) stop(ctx context.Context) error {
	r, err := container.ReadRecord(h.Run, h.state.ID)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && h.runsAgain(&r):
		return nil
	case err != nil:
		return errors.Join(err, container.RemoveRecord(h.Run, h.state.ID, nil))
	case r.EID != "":
		err = h.host.Store.Update(ctx, func(f *state.Files) error {
			forget(f, &r)
			return nil
		})
	}
	return errors.Join(err, container.RemoveRecord(h.Run, r.ID, &r))
}

// runsAgain reports whether the container was started again: its record is about a running process, other than the
// runtime that failed to create it and calls this hook.
func (h *hookCall) runsAgain(r *container.Record) bool {
	if r.PID == 0 || int(r.PID) == os.Getppid() {
		return false
	}
	start, known := h.host.StartOf(r.PID)
	return known && start == r.Start
}

type runcCall struct {
	args    []string
	command string // empty for none
	bundle  string
	id      string
	log     string // for errors that the engine shows; empty for none
}

// Flags of runc(8) and crun(1) with a value as the next word: global ones, and those of create and run.
var (
	globalValued = []string{"log", "log-format", "log-level", "root", "criu", "rootless", "cgroup-manager"}
	createValued = []string{"bundle", "b", "console-socket", "pid-file", "preserve-fds", "config", "f"}
)

func (c *runcCall) starts() bool { return c.command == "create" || c.command == "run" }

func parseCall(args []string) *runcCall {
	c := &runcCall{args: args, bundle: "."}
	flags, rest := takeFlags(args, globalValued, true)
	c.log = flags["log"]
	if len(rest) > 0 {
		c.command = rest[0]
	}
	if !c.starts() {
		return c
	}
	flags, rest = takeFlags(rest[1:], createValued, true)
	c.bundle = cmp.Or(flags["b"], flags["bundle"], c.bundle)
	if len(rest) > 0 {
		c.id = rest[0]
	}
	return c
}

// takeFlags takes leading flags, up to "--", and returns those of valued. switches allows other flags.
func takeFlags(args, valued []string, switches bool) (flags map[string]string, rest []string) {
	flags = map[string]string{}
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		word := args[0]
		name, value, joined := strings.Cut(strings.TrimLeft(word, "-"), "=")
		hasValue := slices.Contains(valued, name)
		if word != "--" && !hasValue && !switches {
			break
		}
		if args = args[1:]; word == "--" {
			break
		}
		if !joined && hasValue && len(args) > 0 {
			value, args = args[0], args[1:]
		}
		flags[name] = value
	}
	return flags, args
}
