package top

import (
	"fmt"
	"os/exec"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// sshCommand is `ssh HOST` with arguments before the host, such as -F FILE. No shell sees
// it. A name that ssh could take for something else is refused.
func sshCommand(arguments []string, host string) (*exec.Cmd, error) {
	if host == "" || strings.HasPrefix(host, "-") || !text.IsMadeOf(host, "._-:%") {
		return nil, fmt.Errorf("%s isn't a name that ssh is called with", text.Shown(host))
	}
	words := append(append([]string{}, arguments...), "--", host)
	return exec.Command("ssh", words...), nil
}
