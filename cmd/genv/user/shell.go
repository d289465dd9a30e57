package user

import (
	"fmt"
	"os"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

type shellOptions struct {
	init, ok, deinit, reattach, reconfigure bool
	shell                                   string
}

func (p *program) shellCommand() *cli.Command {
	o := new(shellOptions)
	return &cli.Command{
		Name:  "shell",
		Usage: `print code for a shell to evaluate: eval "$(genv shell --init)"`,
		Flags: []cli.Flag{
			command.Bool(&o.init, "init", "print the code that initialises a shell"),
			command.Bool(&o.ok, "ok", "say that this shell is initialised"),
			command.Bool(&o.deinit, "deinit", "print the code that removes what --init defined"),
			command.Bool(&o.reattach, "reattach", "print the code that sets the variables of a shell to its GPUs"),
			command.Bool(&o.reconfigure, "reconfigure", "print the code that sets them to its configuration"),
			command.String(&o.shell, "shell", "for this shell, `bash|zsh`, instead of the one that runs this"),
		},
		Action: func(c *cli.Context) error { return p.shellCode(c, o) },
	}
}

// shellCode prints code for a shell. Without a flag it says, as 1.4.3 does, how to initialise
// one: the function that --init defines adds --ok.
func (p *program) shellCode(c *cli.Context, o *shellOptions) error {
	switch {
	case o.ok:
		_, err := fmt.Fprintln(p.Out, "This shell is initialised. `genv status` says whether it is in an environment.")
		return err
	case o.init || o.deinit:
		return p.shellSetup(o)
	case o.reattach || o.reconfigure:
		return p.shellUpdate(c)
	case c.NumFlags() > 0:
		return command.UsageError("missing --init: add this line to your ~/.bashrc or ~/.zshrc: " +
			`command -v genv >/dev/null && eval "$(genv shell --init)"`)
	}
	_, err := fmt.Fprintln(p.Out, shell.ErrNotInitialised)
	return err
}

// shellUpdate prints the variables of the environment: all of them, since those that have not changed do no harm.
func (p *program) shellUpdate(c *cli.Context) error {
	who := p.person()
	files, env, err := who.here(c.Context)
	if err != nil {
		return err
	}
	code, err := shell.Shell143{Environ: p.Getenv}.Render(shell.Update(p.visible(who, activeOf(&files, env))))
	if err == nil {
		_, err = fmt.Fprint(p.Out, code)
	}
	return err
}

// shellSetup prints the code that initialises a shell, or the code that undoes it.
func (p *program) shellSetup(o *shellOptions) error {
	kind, err := p.shellKind(o.shell)
	if err != nil {
		return err
	}
	if !o.init {
		_, err = fmt.Fprintln(p.Out, shell.Deinit(kind))
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	code, err := shell.Init(shell.InitOptions{
		Kind: kind, Exe: exe, Shims: p.shims(exe), Notices: p.box().Path(ownUID()), NoticesRead: p.noticesRead(),
		Preactivate: shell.PreactivationFrom(p.Getenv),
	})
	if err == nil {
		_, err = fmt.Fprint(p.Out, code)
	}
	return err
}

// shims is the folder of the shims of the genv at a path. Without it, which is a
// warning, it is "": a shell and a command are useful without shims too.
func (p *program) shims(exe string) string {
	dir, err := shell.ShimsDir(exe, p.Getenv)
	if err == nil {
		err = shell.EnsureShims(dir, exe)
	}
	if err != nil {
		p.Warn(fmt.Sprintf("genv: nvidia-smi and docker will show all GPUs: %v", err))
		return ""
	}
	return dir
}

// shellKind is the shell that was named, or the one that runs this, which may differ from the login shell in SHELL.
func (p *program) shellKind(name string) (shell.Kind, error) {
	if name != "" {
		return shell.ParseKind(name)
	}
	fs := proc.FS{}
	parent, err := fs.Stat(snapshot.PID(os.Getppid()))
	for err == nil && slices.Contains([]string{"sudo", "su", "timeout", "setpriv", "strace"}, parent.Name) {
		parent, err = fs.Stat(parent.PPID)
	}
	if err != nil {
		return shell.ParseKind(p.Getenv("SHELL"))
	}
	return shell.ParseKind(parent.Name)
}
