package fleet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
)

// sshShell is the command line of ssh(1), which gives the user a terminal on the
// host. sshd accepts no variables of ours unless it was configured to, so env(1)
// sets them there. The shell is a login shell, as in any session.
func sshShell(ssh *sshclient.Options, host remote.Host, environ []string) []string {
	return argsOf(ssh, host, remoteShell(environ))
}

// sshCommand is sshShell for one command.
func sshCommand(ssh *sshclient.Options, host remote.Host, words []string) []string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = remote.Quote(word)
	}
	return argsOf(ssh, host, strings.Join(quoted, " "))
}

func argsOf(ssh *sshclient.Options, host remote.Host, line string) []string {
	args := []string{"ssh", "-t"}
	if ssh.ConfigFile != "" {
		args = append(args, "-F", ssh.ConfigFile)
	}
	if ssh.InsecureHostKeys {
		args = append(args, "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null")
	}
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

// remoteShell is the line that the user's shell on the host reads.
func remoteShell(environ []string) string {
	words := make([]string, len(environ))
	for i, variable := range environ {
		words[i] = remote.Quote(variable)
	}
	return "exec env " + strings.Join(words, " ") + ` "$SHELL" -l -i`
}

// become replaces this program by ssh, so that the terminal, signals and exit status
// are those of the session.
func become(args []string) error {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return errors.New("ssh is not in PATH: install the OpenSSH client, which opens the session")
	}
	if err := syscall.Exec(path, args, os.Environ()); err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	return nil
}
