package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/text"
)

type activateOptions struct {
	hostFlags
	settings           environment.SettingFlags
	noPrompt, noAttach bool
	wait               bool
	within             time.Duration // of wait; 0 for unlimited
}

func activateCommand(h hostFlags) *cli.Command {
	o := &activateOptions{hostFlags: h}
	return &cli.Command{
		Name: "activate", Category: command.Personal,
		Usage: "open a shell with an environment on a host that has the GPUs for it",
		Flags: o.flags(allHosts, append(o.settings.Flags(),
			command.Bool(&o.noPrompt, "no-prompt", "leave the shell's prompt as it is"),
			command.Bool(&o.noAttach, "no-attach", "attach no GPUs yet"),
			o.settings.OverSubscribeFlag(),
			command.Bool(&o.wait, "wait", "wait for your turn in the queues of all these hosts, until one has the "+
				"GPUs: by default as long as it takes").OrTime(&o.within))...),
		Action: o.run,
	}
}

func (o *activateOptions) run(c *cli.Context) error {
	settings, request, err := o.requestOf(c, &o.settings)
	if err != nil {
		return err
	}
	activation := shell.Preactivation{"name": settings.Name, "gpu-memory": settings.GPUMemory.String()}
	if settings.GPUs != nil { // else the user's .genv on the host says it, as with `genv activate`
		activation["gpus"] = strconv.Itoa(request.Count)
	}
	find := (*fleet).findRoom
	if o.wait {
		if find = o.waitForRoom; request.Count == 0 || request.OverSubscribe || o.noAttach {
			return command.WrongFlag("wait", " needs --gpus, and neither --over-subscribe nor --no-attach")
		}
	}
	f, err := o.openHosts(c)
	if err != nil {
		return err
	}
	defer f.close()
	host, err := find(f, c, request)
	if err != nil {
		return err
	}
	for flag, on := range map[string]bool{
		"no-prompt": o.noPrompt, "no-attach": o.noAttach, "over-subscribe": request.OverSubscribe,
	} {
		if on {
			activation[flag] = "1"
		}
	}
	return f.become(c.Context, host, loginShell(activation.Environ()))
}

func (o *hostFlags) requestOf(c *cli.Context, flags *environment.SettingFlags) (
	settings snapshot.EnvConfig, request state.AttachRequest, err error,
) {
	err = flags.Read(c, &settings)
	over := flags.OverSubscribe(o.Getenv)
	request = state.AttachRequest{EID: "new", Memory: settings.GPUMemory, OverSubscribe: over}
	if settings.GPUs != nil {
		request.Count = *settings.GPUs
	}
	return settings, request, err
}

func (f *fleet) findRoom(c *cli.Context, request state.AttachRequest) (host remote.Host, err error) {
	results, err := askMost(c, f, f.room)
	if err != nil {
		return host, err
	}
	if host, ok := roomiest(results, request); ok {
		return host, nil
	}
	return host, fmt.Errorf("no host has %s for this now; `genv remote gpus` shows what there is",
		text.Plural(request.Count, "GPU"))
}

// roomEvery is for hosts without a queue.
const roomEvery = 30 * time.Second

// waitForRoom is findRoom at this user's turn on a host, which then keeps the GPUs for a minute.
func (o *activateOptions) waitForRoom(f *fleet, c *cli.Context, request state.AttachRequest) (
	host remote.Host, err error,
) {
	ctx, cancel := signal.NotifyContext(c.Context, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	ctx, withdraw := giveUpAfter(ctx, o.within)
	defer withdraw()
	if err := f.needShells(ctx); err != nil {
		return host, err
	}
	queue := f.wait(ctx, request.Count, nil, roomEvery)
	defer func() { withdraw(); queue.hosts.Wait() }()
	fmt.Fprintf(o.Err, "Waiting for %s on one of %s. Ctrl-C ends it.\n", text.Plural(request.Count, "free GPU"),
		text.Plural(len(f.Hosts), "host"))
	for pause := 5 * time.Second; ; pause = roomEvery { // the queues first, because others use them
		if offered := queue.pause(ctx, f, pause, ""); offered != nil {
			return offered.Host, nil
		}
		switch {
		case errors.Is(context.Cause(ctx), errGivenUp):
			return host, &command.ExitError{Code: command.ExitLate, Err: fmt.Errorf(
				"it was not your turn within %s", text.FormatDuration(o.within))}
		case ctx.Err() != nil:
			return host, errors.New("interrupted")
		}
		asker := f.asker()
		asker.Hosts = slices.DeleteFunc(slices.Clone(f.Hosts), func(h remote.Host) bool { return queue.has(h.Name) })
		if host, ok := roomiest(controller.Ask(ctx, asker, f.room), request); ok {
			return host, nil
		}
	}
}

// needShells leaves out hosts where the user's login shell doesn't activate itself: the user would lose a turn there.
func (f *fleet) needShells(ctx context.Context) error {
	results := controller.Ask(ctx, f.asker(), func(ctx context.Context, h remote.Host) (remote.Output, error) {
		return f.client.Run(ctx, h, remote.Command{Args: []string{"sh", "-c", checkShell}})
	})
	f.progress.End()
	var names []string
	for _, r := range results {
		if r.Err == nil && !strings.Contains(string(r.Value.Stdout), shellIsReady) {
			names = append(names, r.Host.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	err := fmt.Errorf("your login shell is not set up on %s: docs/using-gpus.md has the line for its rc file",
		strings.Join(names, ", "))
	left := func(h remote.Host) bool { return slices.Contains(names, h.Name) }
	if f.Hosts = slices.DeleteFunc(slices.Clone(f.Hosts), left); len(f.Hosts) == 0 {
		return err
	}
	f.Warnf("left out: %v", err)
	return nil
}

// room falls back to which devices are attached.
func (f *fleet) room(ctx context.Context, h remote.Host) (*snapshot.Snapshot, error) {
	if s, via, err := f.commands().Visible(ctx, h); err == nil && via == agent.ViaCommands {
		return s, nil
	}
	devices, err := f.commands().Devices(ctx, h)
	return &snapshot.Snapshot{Devices: devices}, err
}

// roomiest is the host with the most free devices that can meet the request now; without a count any can.
func roomiest(results []remote.Result[*snapshot.Snapshot], r state.AttachRequest) (host remote.Host, ok bool) {
	most := -1
	for _, result := range results {
		if result.Err != nil {
			continue
		}
		list := gpus.Of(result.Value)
		r.States, r.Last = gpus.InUse(list), gpus.Last(list)
		files := state.Files{Devices: slices.Clone(result.Value.Devices)}
		if _, err := files.Attach(r); err != nil && r.Count != 0 {
			continue
		}
		free := len(slices.DeleteFunc(list, func(g gpus.GPU) bool { return g.State != gpus.Free }))
		if free > most {
			host, most = result.Host, free
		}
	}
	return host, most >= 0
}

func sshTo(ssh *sshclient.Options, known []string, host remote.Host, line string) []string {
	args := []string{"ssh", "-t"}
	if ssh.ConfigFile != "" {
		args = append(args, "-F", ssh.ConfigFile)
	}
	if ssh.InsecureHostKeys {
		args = append(args, "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null")
	}
	args = append(args, known...)
	if timeout := ssh.ConnectTimeout; timeout != 0 {
		args = append(args, "-o", "ConnectTimeout="+strconv.Itoa(max(1, int(timeout.Seconds()))))
	}
	if host.Address != "" {
		args = append(args, "-o", "HostName="+host.Address)
	}
	if host.Port != 0 {
		args = append(args, "-p", strconv.Itoa(host.Port))
	}
	if host.User != "" {
		args = append(args, "-l", host.User)
	}
	return append(args, "--", host.Name, line)
}

// loginShell starts a login shell. sshd accepts only configured variables, so env(1) sets them. A shell that won't
// activate itself prints so. The line has no exclamation mark, for any login shell (see remote.Quote).
func loginShell(environ []string) string {
	return "exec env " + remote.Command{Args: append(environ, "sh", "-c", openShell)}.ShellLine()
}

// isSetUp tests whether a login shell knows genv. If so, checkShell prints shellIsReady.
const (
	isSetUp      = `GENV_PREACTIVATE= "$SHELL" -l -i -c "typeset -f genv" </dev/null >/dev/null 2>&1`
	shellIsReady = "genv-shell-ready"
	checkShell   = `case ${SHELL##*/} in bash|zsh) ` + isSetUp + ` && echo ` + shellIsReady + `;; esac; :`
)

const openShell = `k=${SHELL##*/}; none="so this shell has no environment; genv run COMMAND starts a command in one"; ` +
	`case $k in bash|zsh) ` + isSetUp + ` || ` +
	`echo "genv: $k is not set up on this host (docs/using-gpus.md has the line for its rc file), $none" >&2; ` +
	`exec "$SHELL" -l -i;; ` +
	`*) echo "genv: $k can not activate environments, as bash and zsh can, $none" >&2; exec "$SHELL" -l;; esac`

// become makes terminal, signals and status those of ssh.
func (f *fleet) become(ctx context.Context, host remote.Host, line string) error {
	args := sshTo(&f.SSH, f.client.KnownHosts(ctx, host), host, line)
	f.close()
	path, err := exec.LookPath(args[0])
	if err != nil {
		return errors.New("ssh is not in PATH: install the OpenSSH client, which opens the session")
	}
	if err := syscall.Exec(path, args, os.Environ()); err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	return nil
}
