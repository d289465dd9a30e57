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
)

// verify runs the program as a controller does: by sudoers where the login or the account
// isn't root. What stands in the way of acting is a note: the driver may follow.
func (v *visit) verify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	token := rand.Text()
	words := []string{v.wanted.Path, "usage", "serve"}
	greeting, warnings, err := v.greeting(ctx, token, words)
	if err != nil {
		return v.unusable(ctx, err)
	}
	v.outcome.Notes = append(v.outcome.Notes, warnings...)
	v.outcome.Now.Version = cmp.Or(v.outcome.Now.Version, greeting.Genv)
	if greeting.Genv != v.outcome.Now.Version || !greeting.Can(agent.RequestExecute) {
		return refuse("look at the lines for it in sudoers: sudo visudo -c",
			"sudo runs genv %s there, with the rights to %v, and not %s as root", greeting.Genv, greeting.Capabilities,
			v.outcome.Now.Version)
	}
	v.warnIfNotFound(ctx)
	return nil
}

// greeting starts `genv usage serve` as the account that controllers use, and has it try what acting needs.
func (v *visit) greeting(
	ctx context.Context, token string, words []string,
) (_ *frame.Greeting, warnings []string, _ error) {
	var command remote.Command
	switch v.wanted.Account {
	case "":
		command.Args = words
	case v.login.User:
		command.Args = append([]string{"sudo", "-n"}, words...)
	default: // as root, who may become the account
		return v.greetingAs(ctx, token, words)
	}
	command.Stdin = agent.AskOnce(token)
	out, err := v.Runner.Run(ctx, v.host, command)
	if err != nil {
		return nil, nil, err
	}
	return readGreeting(out.Stdout, token)
}

func (v *visit) greetingAs(ctx context.Context, token string, words []string) (_ *frame.Greeting, warnings []string, _ error) {
	asAccount := []string{"sudo", "-n", "-u", v.wanted.Account, "sudo", "-n"}
	line := remote.Command{Args: append(asAccount, words...)}.ShellLine()
	begin := rand.Text()
	asked := ""
	for _, b := range agent.AskOnce(token) {
		asked += fmt.Sprintf("\\%03o", b)
	}
	input := v.access.input(begin, script{text: "printf '" + asked + "' | " + line + "\n"})
	defer clear(input)
	out, err := v.Runner.Run(ctx, v.host, remote.Command{Args: v.access.asRoot(receive(begin)), Stdin: input})
	if err != nil {
		return nil, nil, withoutSecret(err, v.access.secret)
	}
	return readGreeting(out.Stdout, token)
}

func readGreeting(output []byte, token string) (_ *frame.Greeting, warnings []string, _ error) {
	greeting, trial, err := agent.ReadOnce(bytes.NewReader(output), token)
	if err != nil {
		err = &remote.Error{Class: remote.InvalidOutput, Err: err}
	}
	return greeting, trial.Warnings(), err
}

// unusable is the error of a program that is in place and can't be used by a controller.
func (v *visit) unusable(ctx context.Context, err error) error {
	if v.wanted.Account == v.login.User && mayBeSudo(err) {
		host := v.host
		host.GenvPath = v.wanted.Path
		err = remote.Diagnose(ctx, v.Runner, host, err)
	}
	e := &remote.Error{Class: remote.ClassOf(err), Next: remote.NextStepOf(err)}
	e.Err = fmt.Errorf("genv is at %s, and a controller can't run it as root: %w", v.wanted.Path, err)
	if v.wanted.Account != "" && v.wanted.Account != v.login.User && mayBeSudo(err) {
		e.Next = fmt.Sprintf("`sudo -l -U %s` on the host shows what is allowed, and the last rule for genv counts; "+
			"%s/%s must have `%s`, and /etc/sudoers a line `@includedir %s`",
			v.wanted.Account, SudoersFolder, remote.SudoersFile,
			remote.SudoersLine(remote.SudoersAccount(v.wanted.Account, v.state.AccountUID), v.wanted.Path),
			SudoersFolder)
	}
	return e
}

// warnIfNotFound runs genv by the name that controllers use: sudo looks for it in its
// secure_path, where another genv may come first, or the folder may be missing.
func (v *visit) warnIfNotFound(ctx context.Context) {
	if v.host.GenvPath == v.wanted.Path || v.state.Found == v.wanted.Path {
		return
	}
	answer, err := v.lookAsRoot(ctx)
	if err != nil || answer.one("found") == v.wanted.Path {
		return
	}
	v.outcome.Notes = append(v.outcome.Notes, fmt.Sprintf("sudo doesn't find it as genv: set `genv: %s` for the host "+
		"in hosts.yaml", v.wanted.Path))
}

// failure is the error of a script that gave up: the host has what it had before. why is what its programs said.
func (v *visit) failure(failed, why string) error {
	next := "read the words of the host above"
	text := "the installation failed: " + failed
	switch failed {
	case "write":
		text, next = "a file can't be written", "look for free space and for mounts that are read-only on the host"
	case "checksum":
		text, next = "the program arrived with another checksum", "run it again; if it fails again, the connection "+
			"or the host's disk changes data"
	case "run":
		text = fmt.Sprintf("the new program doesn't run from %s", v.wanted.Path)
		next = "look for a mount with noexec, or a kernel that allows only known programs; the files are as before"
	case "visudo":
		text, next = "visudo refuses the lines for genv", "correct what visudo says with `sudo visudo -c` on the "+
			"host; the files are as before"
	case "busy":
		text, next = "another installation is under way", "run it again when the other one has ended"
	case "state":
		text, next = "genv is in place, and who owns the state was not changed",
			"look at `systemctl status genv-host` on the host, then run it again with --state root or --state shared"
	case "account":
		text, next = "the controller's account can't be set up there",
			"make it there by hand, with the key of /etc/genv/controller.pub; the files are as before"
	case "extras":
		text, next = "genv is in place, and not all that comes with it",
			"run it again when the host has no longer what is named"
	case "changed":
		text, next = "another process changed the program meanwhile", "run it again"
	}
	if why != "" {
		text += ": " + why
	}
	e := remote.Errorf(remote.CommandFailed, "%s", text)
	e.Next = next
	return e
}
