package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/cmd/genv/render"
)

func (p *program) remoteActivateCommand() *cli.Command {
	return &cli.Command{
		Name:  "activate",
		Usage: "open a shell with an environment on a host that has the devices for it",
		Flags: append(append(remoteFlags(), environment.SettingFlags()...),
			&cli.BoolFlag{Name: "no-prompt", Usage: "leave the shell's prompt as it is"},
			&cli.BoolFlag{Name: "no-attach", Usage: "attach no devices yet"},
			environment.OverSubscribeFlag()),
		Action: p.remoteActivate,
	}
}

func (p *program) remoteActivate(c *cli.Context) error {
	var config snapshot.EnvConfig
	if err := environment.ReadSettings(c, &config); err != nil {
		return err
	}
	f, err := p.openFleet(c)
	if err != nil {
		return err
	}
	defer f.Close()
	for i := range f.Hosts {
		f.Hosts[i].NoSudo = true // who activates need be no administrator, and anyone may see the devices
	}
	request := state.AttachRequest{EID: "new", Count: 1, Memory: config.GPUMemory, OverSubscribe: environment.OverSubscribe(c, p.Getenv)}
	if config.GPUs != nil {
		request.Count = *config.GPUs
	}
	results := controller.Ask(c.Context, f.Controller, f.commands().Devices)
	failures := render.FailuresOf(results)
	if err := p.conclude(f, failures, nil); len(failures) == len(results) {
		return err
	}
	host, ok := roomiest(results, request)
	if !ok {
		return fmt.Errorf("no host has %s for this now; `genv remote devices` shows what there is", render.Plural(request.Count, "device"))
	}
	f.Close() // exec closes nothing
	environ := shell.Preactivation{
		Name: config.Name, GPUs: strconv.Itoa(request.Count), GPUMemory: config.GPUMemory.String(),
		NoPrompt: c.Bool("no-prompt"), NoAttach: c.Bool("no-attach"), OverSubscribe: environment.OverSubscribe(c, p.Getenv),
	}.Environ()
	args, err := sshArgs(c, host, environ)
	if err != nil {
		return err
	}
	return becomeSSH(args)
}

// roomiest is the host with the most devices without attachments, among those
// on which the request can be met now; the first named of equals.
func roomiest(results []remote.Result[[]snapshot.Device], r state.AttachRequest) (remote.Host, bool) {
	var fitting []remote.Result[[]snapshot.Device]
	for _, result := range results {
		if result.Err != nil {
			continue
		}
		books := state.Files{Devices: slices.Clone(result.Value)}
		if _, err := books.Attach(r); err == nil {
			fitting = append(fitting, result)
		}
	}
	if len(fitting) == 0 {
		return remote.Host{}, false
	}
	best := slices.MaxFunc(fitting, func(a, b remote.Result[[]snapshot.Device]) int {
		return cmp.Compare(free(a.Value), free(b.Value)) // MaxFunc returns the first of equals
	})
	return best.Host, true
}

func free(devices []snapshot.Device) (n int) {
	for i := range devices {
		if len(devices[i].Attachments) == 0 {
			n++
		}
	}
	return n
}

// sshArgs is the command line of ssh(1), which gives the user a terminal on the
// host. sshd accepts no variables of ours unless it was configured to, so env(1)
// sets them there. The shell is a login shell, as in any session.
func sshArgs(c *cli.Context, host remote.Host, environ []string) ([]string, error) {
	args := []string{"ssh", "-t"}
	if file := command.Given(c, "ssh-config").String("ssh-config"); file != "" {
		args = append(args, "-F", file)
	}
	if command.Given(c, "insecure-ignore-host-keys").Bool("insecure-ignore-host-keys") {
		args = append(args, "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null")
	}
	if command.IsGiven(c, "timeout") {
		timeout, err := command.PositiveDuration(c, "timeout")
		if err != nil {
			return nil, err
		}
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
	return append(args, "--", host.Name, remoteShell(environ)), nil
}

// remoteShell is the line that the user's shell on the host reads.
func remoteShell(environ []string) string {
	words := make([]string, len(environ))
	for i, variable := range environ {
		words[i] = remote.Quote(variable)
	}
	return "exec env " + strings.Join(words, " ") + ` "$SHELL" -l -i`
}

// becomeSSH turns this program into ssh, whose terminal, signals and exit status
// are the user's own then.
func becomeSSH(args []string) error {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return errors.New("there is no ssh in PATH, which opens the session: install the OpenSSH client")
	}
	if err := syscall.Exec(path, args, os.Environ()); err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	return nil
}
