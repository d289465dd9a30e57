package install

import (
	"fmt"

	"github.com/seed-3119e985/genv/remote"
)

// failure is the error of a script that gave up: the host has what it had before. why is
// what its programs said.
func (v *visit) failure(failed, why string) error {
	next := "read the words of the host above"
	text := "the installation failed: " + failed
	switch failed {
	case "write":
		text, next = "a file can't be written", "look for free space and for mounts that are read-only on the host"
	case "checksum":
		text, next = "the program arrived with another checksum", "run it again; if it fails again, the connection or the host's disk changes data"
	case "run":
		text = fmt.Sprintf("the new program doesn't run from %s", v.wanted.Path)
		next = "look for a mount with noexec, or a kernel that allows only known programs; nothing was changed"
	case "visudo":
		text, next = "visudo refuses the lines for genv", "correct what visudo says with `sudo visudo -c` on the host; nothing was changed"
	case "busy":
		text, next = "another installation is under way", "run it again when the other one has ended"
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
