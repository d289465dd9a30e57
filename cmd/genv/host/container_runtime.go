package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// The commands that container engines call, which people don't: they are not in the list of
// commands, and start without reading one.
//
//	genv container-runtime --real /usr/sbin/runc -- create --bundle B ID
//
// becomes runc with exec(2). Only for `create` and `run` of a container that asks for GPUs,
// or has a token of root's service, does it do something before: it attaches devices (see
// package grant), and changes the bundle's config.json so that the container sees them.
//
// A container that asks for no GPU is always started, whatever is wrong here. One that asks
// for some is not, and the error says why.
const (
	RuntimeCommand = "container-runtime"
	HookCommand    = "container-hook"
)

type runtime struct {
	command.Program
	host *localhost.Host
	real string // the runtime that it becomes
	*runcCall
	// exec becomes another program, as syscall.Exec.
	exec func(path string, argv, environ []string) error
}

// ContainerRuntime becomes the real runtime. args are those behind the command's name: --real PATH (or else runc in
// PATH), `--`, and the line for the real runtime. It returns the exit status if that fails.
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

// ownFlags separates the flags of this program from the line for the real runtime.
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

// start prepares a container, and becomes the real runtime.
func (r *runtime) start(ctx context.Context) error {
	environ := os.Environ()
	var prepared *claimed
	if r.starts() {
		var err error
		if prepared, err = r.prepare(ctx); err != nil {
			return err
		}
	}
	if prepared != nil { // this process belongs to the environment until the container's init does
		environ = append(environ, snapshot.ClaimVariable+"="+string(prepared.EID))
	}
	err := r.exec(r.real, append([]string{r.real}, r.args...), environ)
	if prepared != nil {
		prepared.undo(ctx)
	}
	return fmt.Errorf("start the real container runtime %s: %w: correct --real in dockerd's daemon.json", r.real, err)
}

// prepare gives a container its devices, and changes its config.json. It returns nil for
// one that is started as it is. An error means that it must not be started.
func (r *runtime) prepare(ctx context.Context) (*claimed, error) {
	config, err := oci.Read(r.bundle)
	switch {
	case errors.Is(err, folder.ErrUnsafe), errors.Is(err, oci.ErrGarbled):
		return nil, err // no engine writes such a file
	case err != nil: // the real runtime says what is wrong
		return nil, nil
	}
	request, err := grant.Asked(config, strings.HasPrefix(filepath.Base(r.real), "nvidia-container-runtime"))
	if err != nil {
		return nil, err
	}
	asks := request.AsksForGPUs()
	if !asks && request.Token == "" {
		return nil, nil
	}
	if asks {
		if !container.IsID(r.id) {
			return nil, notDockers(r.id)
		}
		return r.give(ctx, config, request)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	prepared, err := r.give(ctx, config, request)
	if err != nil { // it needs no GPU, and so not genv
		r.Warn("genv: the container runs without an environment: " + err.Error())
		return nil, nil
	}
	return prepared, nil
}

// give gives a container its environment, and writes that into its config.json.
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

// patience is how long a container that asks for no GPU waits for genv.
const patience = 3 * time.Second

func notDockers(id string) error {
	return fmt.Errorf("%w: the container's id %s isn't one of Docker's", grant.ErrRefused, text.Quoted(id, 60))
}

// engineName is the engine that calls, as far as the paths that it gives show.
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

var errNoService = errors.New("root's service doesn't run (`genv host serve`)")

// report says why a container can't be started: on stderr, and in the file from which the
// engine takes the message of `docker run`.
func (r *runtime) report(err error) {
	if err == nil {
		return
	}
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
	_, _ = file.Write(append(line, '\n')) // it is on stderr, too
	_ = file.Close()
}
