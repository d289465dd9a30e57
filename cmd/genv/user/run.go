package user

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/change"
)

// runIn needs no shell: this process itself is registered. If it is killed, the
// environment lasts until the command has ended.
func (p *program) runIn(c *cli.Context) error {
	words := c.Args().Slice()
	if len(words) == 0 {
		return command.UsageError("missing command: write `genv run COMMAND`")
	}
	return p.runJob(c, job{words: words})
}

// job is a command that runs in an environment of its own.
type job struct {
	words   []string
	name    string   // of the environment, instead of that of the flags; empty for that
	environ []string // more variables
	// meanwhile runs as long as the command; it may be nil.
	meanwhile func(context.Context)
}

func (p *program) runJob(c *cli.Context, j job) error {
	words := j.words
	if _, err := exec.LookPath(words[0]); err != nil {
		return notStarted(&p.Program, "run", err) // before anything is registered
	}
	signals, stop := caughtSignals()
	defer stop()
	who := p.person()
	active, err := p.runEntry(c, who, j.name)
	if err != nil {
		return err
	}
	shims, environ := p.runEnviron(active)
	cmd := exec.Command(words[0], words[1:]...)
	if shim, ok := shell.Shim(words[0]); ok && shim == words[0] && shims != "" {
		cmd.Path, cmd.Err = filepath.Join(shims, shim), nil
	}
	cmd.Env = slices.Concat(environ, j.environ)
	ctx, cancel := context.WithCancel(c.Context)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if j.meanwhile != nil {
			j.meanwhile(ctx)
		}
	}()
	status := supervise(&p.Program, "run", cmd, signals)
	cancel()
	<-done
	if err := p.runLeave(c.Context, who); err != nil {
		p.Warn(fmt.Sprintf("environment %s is still registered: %v; the next genv command removes it", active.EID, err))
	}
	return status
}

// runEntry registers this process.
func (p *program) runEntry(c *cli.Context, who *person, name string) (shell.Active, error) {
	e, err := p.newEntry(c, who, snapshot.PID(os.Getpid()))
	if err != nil {
		return shell.Active{}, err
	}
	e.Config.Name = cmp.Or(name, e.Config.Name)
	entered, err := who.Change(c.Context, change.Change{Enter: &e.Enter})
	if err == nil && !c.Bool("quiet") {
		p.reportAttached(e.others, nil, entered.Now)
	}
	if err != nil {
		return shell.Active{}, err
	}
	return p.visible(who, activeAfter(&entered)), nil
}

// leaveWithin is how long the end of an environment may take, after a signal
// too.
const leaveWithin = 30 * time.Second

func (p *program) runLeave(ctx context.Context, who *person) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer cancel()
	return p.leave(ctx, who, change.Leave{PID: snapshot.PID(os.Getpid())})
}

// runEnviron are the variables that an activated shell exports, and PATH with the
// folder of the shims first, if there is one.
func (p *program) runEnviron(active shell.Active) (shims string, environ []string) {
	change := shell.Activate(active, true)
	names := slices.Clone(change.Unset)
	var set []string
	for _, v := range change.Set {
		names, set = append(names, v.Name), append(set, v.Name+"="+v.Value)
	}
	if exe, err := os.Executable(); err == nil {
		shims = p.shims(exe)
	}
	if shims != "" {
		folders := slices.DeleteFunc(filepath.SplitList(p.Getenv("PATH")), func(f string) bool { return f == shims })
		path := strings.Join(append([]string{shims}, folders...), string(filepath.ListSeparator))
		names, set = append(names, "PATH"), append(set, "PATH="+path)
	}
	kept := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(names, name)
	})
	return shims, append(kept, set...)
}
