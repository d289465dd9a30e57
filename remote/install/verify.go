package install

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/frame"
)

// verify runs the program as a controller does: by sudoers unless the login or the account is root. Obstacles to acting
// are notes, since the driver may follow.
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
		return refuse("look at the lines for it in sudoers: sudo visudo -c",
			"sudo runs genv %s there, with the rights to %v, and not %s as root", greeting.Genv, greeting.Capabilities,
			v.outcome.Now.Version)
	}
	v.warnIfNotFound(ctx)
	return nil
}

// greeting starts `genv usage serve` as the controllers' account, and has it try what acting needs.
func (v *installation) greeting(ctx context.Context) (_ *frame.Greeting, warnings []string, _ error) {
	token, words := rand.Text(), []string{v.wanted.Path, "usage", "serve"}
	command := remote.Command{Args: words, Stdin: agent.AskOnce(token)}
	switch v.wanted.Account {
	case "":
	case v.login.one("user"):
		command.Args = append([]string{"sudo", "-n"}, words...)
	default: // as root, who may become the account
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

// asAccount is the command with which root runs another one as the account and by its sudo.
func (v *installation) asAccount(words []string, stdin []byte) remote.Command {
	words = append([]string{"sudo", "-n", "-u", v.wanted.Account, "sudo", "-n"}, words...)
	line := remote.Command{Args: words}.ShellLine()
	escaped := ""
	for _, b := range stdin {
		escaped += fmt.Sprintf("\\%03o", b)
	}
	begin := rand.Text()
	input := v.access.input(begin, "printf '"+escaped+"' | "+line+"\n", nil)
	return remote.Command{Args: v.access.asRoot(receive(begin)), Stdin: input}
}

func (v *installation) unusable(ctx context.Context, err error) error {
	if v.wanted.Account == v.login.one("user") && mayBeSudo(err) {
		host := v.host
		host.GenvPath = v.wanted.Path
		err = remote.Diagnose(ctx, v.Runner, host, err)
	}
	e := &remote.Error{Class: remote.ClassOf(err), Next: remote.NextStepOf(err)}
	e.Err = fmt.Errorf("genv is at %s, and a controller can't run it as root: %w", v.wanted.Path, err)
	if v.wanted.Account != "" && v.wanted.Account != v.login.one("user") && mayBeSudo(err) {
		e.Next = fmt.Sprintf("`sudo -l -U %s` on the host shows what is allowed, and the last rule for genv counts; "+
			"%s/%s must have `%s`, and /etc/sudoers a line `@includedir %s`",
			v.wanted.Account, SudoersFolder, remote.SudoersFile,
			remote.SudoersLine(remote.SudoersAccount(v.wanted.Account, v.found.AccountUID), v.wanted.Path),
			SudoersFolder)
	}
	return e
}

// warnIfNotFound warns if controllers don't find genv by its name: secure_path may lack its folder, or lead to another
// genv first.
func (v *installation) warnIfNotFound(ctx context.Context) {
	if v.host.GenvPath == v.wanted.Path || v.found.Found == v.wanted.Path {
		return
	}
	answer, err := v.ask(ctx, v.access, lookScripts)
	if err != nil || answer.one("found") == v.wanted.Path {
		return
	}
	v.outcome.Notes = append(v.outcome.Notes, fmt.Sprintf("sudo doesn't find it as genv: set `genv: %s` for the host "+
		"in hosts.yaml", v.wanted.Path))
}

// failures are the words for a script's failure, and the next step. %s is the path of the program.
var failures = map[string][2]string{
	"write": {"a file can't be written", "look for free space and for mounts that are read-only on the host"},
	"checksum": {
		"the program arrived with another checksum",
		"run it again; if it fails again, the connection or the host's disk changes data",
	},
	"run": {
		"the new program doesn't run from %s",
		"look for a mount with noexec, or a kernel that allows only known programs; the files are as before",
	},
	"visudo": {
		"visudo refuses the lines for genv",
		"correct what visudo says with `sudo visudo -c` on the host; the files are as before",
	},
	"busy": {"another installation is under way", "run it again when the other one has ended"},
	"state": {
		"genv is in place, and who owns the state was not changed",
		"look at `systemctl status genv-host` on the host, then run it again with --state root or --state shared",
	},
	"account": {
		"the controller's account can't be set up there",
		"make it there by hand, with the key of /etc/genv/controller.pub; the files are as before",
	},
	"extras": {
		"genv is in place, and not all that comes with it", "run it again when the host has no longer what is named",
	},
	"changed": {"another process changed the program meanwhile", "run it again"},
}

// failure is the error of a script that gave up, after which the host is as before. why is what its programs said.
func (v *installation) failure(failed, why string) error {
	said, known := failures[failed]
	if !known {
		said = [2]string{"the installation failed: " + failed, "read the words of the host above"}
	}
	message := strings.ReplaceAll(said[0], "%s", v.wanted.Path)
	if why != "" {
		message += ": " + why
	}
	return remote.Errorf(remote.CommandFailed, "%s", message).WithNext(said[1])
}
