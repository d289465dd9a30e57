package delegate

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
)

// versionVariable is the environment variable that tells genv-remote which version of genv
// starts it.
const versionVariable = "GENV_REMOTE_FOR"

// Commands are placeholders in genv for the commands of genv-remote, so that help and
// completion list them.
func Commands() []*cli.Command {
	commands := []*cli.Command{
		{Name: "policy", Usage: "check, explain and try policy files"},
		{Name: "remote", Usage: "work on many hosts over SSH"},
	}
	for _, cmd := range commands {
		cmd.Action = func(*cli.Context) error { // Start took it for something else, as in `genv -- remote`
			return command.UsageError("write `genv %s` with nothing before %s", cmd.Name, cmd.Name)
		}
	}
	return commands
}

func isRemote(word string) bool { return word == "policy" || word == "remote" }

// Start becomes genv-remote if the command line, which begins with the program's name, is
// for it: with a command that genv doesn't have, with help or completion for one, or to write
// all man pages. It returns nil for all other lines, and for a completion that genv-remote
// can't do. An error says why genv-remote can't be started, and what to do.
//
// No signal may be caught yet: one that comes before exec(2) would get lost.
func Start(args []string, version string) error {
	words := args[min(1, len(args)):]
	if !isForRemote(words) {
		return nil
	}
	err := become(args, version)
	if words[0] == "__complete" {
		return nil
	}
	return err
}

func isForRemote(words []string) bool {
	switch {
	case len(words) == 0:
		return false
	case words[0] == "__complete": // a quick look at the line is enough: genv-remote can complete any
		line := strings.Join(words[1:], " ")
		return strings.Contains(line, "policy") || strings.Contains(line, "remote")
	case words[0] == "help":
		return len(words) > 1 && isRemote(words[1])
	}
	return words[0] == "man" || isRemote(words[0])
}

// become is exec(2) of genv-remote. It returns only if that fails.
func become(args []string, version string) error {
	path, err := find("genv-remote", "../libexec/genv")
	if err != nil {
		return fmt.Errorf("`genv %s` needs genv-remote: %w; run it on the controller, or install the package of genv on this machine", args[1], err)
	}
	environ := append(os.Environ(), versionVariable+"="+version)
	err = syscall.Exec(path, args, environ)
	return fmt.Errorf("start %s: %w; install genv and genv-remote from one package", path, err)
}
