package agent

import (
	"context"
	"fmt"
	"strings"

	"github.com/seed-3119e985/genv/remote"
)

// withoutRoot is the failure of a host that can't be enforced, since genv runs there as a
// login without root: its snapshot would lack what other users' processes belong to.
func withoutRoot(host remote.Host) error {
	next := "have sudo run genv as root there (`sudo -n genv usage serve`): look for runas_default and `Runas` in sudoers"
	if host.NoSudo {
		next = "remove `sudo: false` for it from hosts.yaml and allow genv in sudoers, as docs/operations.md says, or log in as root"
	}
	return &remote.Error{
		Class: remote.Sudo, Next: next,
		Err: fmt.Errorf("genv runs without root on %s: it shows devices and environments, and nothing can be enforced", host.Name),
	}
}

// whichUser prints the effective uid of the login, on a line of its own.
const whichUser = `echo; echo "genv-uid $(id -u)"`

// requireRoot returns an error unless genv runs as root: one without `usage serve` doesn't
// say it. sudo runs commands as root, so only a login without sudo is asked.
func (c Commands) requireRoot(ctx context.Context, host remote.Host) error {
	if !host.NoSudo {
		return nil
	}
	out, err := c.Network.Run(ctx, host, remote.Command{Args: []string{"sh", "-c", whichUser}})
	if err != nil {
		return err
	}
	for _, line := range lines(out.Stdout) {
		if uid, ok := strings.CutPrefix(line, "genv-uid "); ok && strings.TrimSpace(uid) == "0" {
			return nil
		}
	}
	return withoutRoot(host)
}
