package install

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"fmt"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/frame"
	"github.com/seed-3119e985/genv/remote/install/onhost"
)

// verify runs the program like a controller: by sudoers unless the login or account is root. Obstacles to acting are
// notes, as the driver may follow.
func (v *installation) verify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	greeting, warnings, err := v.greeting(ctx)
	if err != nil {
		return v.unusable(ctx, err)
	}
	v.outcome.Notes = append(v.outcome.Notes, warnings...)
	v.outcome.Now.Version = cmp.Or(v.outcome.Now.Version, greeting.Genv)
	if greeting.Genv != v.outcome.Now.Version || !greeting.Can(agent.RequestExecute) {
		return onhost.Refuse("look at the lines for it in sudoers: sudo visudo -c",
			"sudo runs genv %s there, with the rights to %v, and not %s as root", greeting.Genv, greeting.Capabilities,
			v.outcome.Now.Version)
	}
	return nil
}

// greeting runs `genv usage serve` as the controllers' account, and tries what acting needs.
func (v *installation) greeting(ctx context.Context) (_ *frame.Greeting, warnings []string, _ error) {
	token, words := rand.Text(), []string{v.wanted.Path, "usage", "serve"}
	command := remote.Command{Args: words, Stdin: agent.AskOnce(token)}
	switch v.wanted.Account {
	case "":
	case v.login.Last("user"):
		command.Args = append([]string{"sudo", "-n"}, words...)
	default: // through root, who may become the account
		command = v.asAccount(words, command.Stdin)
		defer clear(command.Stdin)
	}
	out, err := v.Runner.Run(ctx, v.host, command)
	if err != nil {
		return nil, nil, withoutSecret(err, v.access.secret)
	}
	greeting, trial, err := agent.ReadOnce(bytes.NewReader(out.Stdout), token)
	if err != nil {
		err = &remote.Error{Class: remote.InvalidOutput, Err: err}
	}
	return greeting, trial.Warnings(), err
}

// asAccount makes root run a command as the account, through its sudo.
func (v *installation) asAccount(words []string, stdin []byte) remote.Command {
	words = append([]string{"sudo", "-n", "-u", v.wanted.Account, "sudo", "-n"}, words...)
	begin, line := rand.Text(), remote.Command{Args: words}.ShellLine()
	return remote.Command{
		Args: v.access.asRoot(receive(begin)), Stdin: v.access.input(begin, line+"\n", nil),
		Upload: bytes.NewReader(stdin),
	}
}

func (v *installation) unusable(ctx context.Context, err error) error {
	if v.wanted.Account == v.login.Last("user") && mayBeSudo(err) {
		host := v.host
		host.GenvPath = v.wanted.Path
		err = remote.Diagnose(ctx, v.Runner, host, err)
	}
	e := &remote.Error{Class: remote.ClassOf(err), Next: remote.NextStepOf(err)}
	e.Err = fmt.Errorf("genv is at %s, and a controller can't run it as root: %w", v.wanted.Path, err)
	if v.wanted.Account != "" && v.wanted.Account != v.login.Last("user") && mayBeSudo(err) {
		e.Next = fmt.Sprintf("`sudo -l -U %s` on the host shows what is allowed, and the last rule for genv counts; "+
			"%s/%s must have `%s`, and /etc/sudoers a line `@includedir %s`",
			v.wanted.Account, onhost.SudoersFolder, remote.SudoersFile,
			remote.SudoersLine(remote.SudoersAccount(v.wanted.Account, v.uid), v.wanted.Path),
			onhost.SudoersFolder)
	}
	return e
}
