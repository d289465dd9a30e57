package agent

import (
	"context"
	"strings"

	"github.com/seed-3119e985/genv/remote"
)

// Identity is what identifies the machine behind a host name, as the machine
// itself reports it. What is not known is empty.
type Identity struct {
	Machine string // machine-id(5), hashed for genv
	Boot    string // the kernel's boot id
	Folder  string // device and inode of the state folder
}

// whoAmI prints what identifies a machine, its boot and its state folder. It needs
// neither genv nor root.
const whoAmI = `echo "genv-machine $(cat /etc/machine-id) $(cat /proc/sys/kernel/random/boot_id) $(stat -Lc %d/%i "${GENV_TMPDIR:-/var/tmp/genv}")"`

// Identify asks a host what identifies its machine.
func (c Commands) Identify(ctx context.Context, host remote.Host) (Identity, error) {
	out, err := c.Network.Run(ctx, host, remote.Command{Args: []string{"sh", "-c", whoAmI}})
	if err != nil {
		return Identity{}, err
	}
	for _, line := range lines(out.Stdout) {
		if words := strings.Fields(line); len(words) == 4 && words[0] == "genv-machine" {
			return Identity{Machine: words[1], Boot: words[2], Folder: words[3]}, nil
		}
	}
	return Identity{}, nil // nothing is known
}

// About returns what is known about a host.
func (c Commands) About(host remote.Host) About {
	peer, _ := c.Network.Peer(host)
	return About{Via: ViaCommands, Peer: peer}
}
