package report

import (
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote"
)

// checkOwner refuses the file of another user, even to root: SQLite would have to trust what
// that user wrote, and to write files next to it.
func checkOwner(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return command.UsageError("%s: %w", path, err)
	}
	if int(st.Uid) == unix.Geteuid() {
		return nil
	}
	owner := "#" + strconv.FormatUint(uint64(st.Uid), 10) // as sudo takes it
	if account, err := user.LookupId(owner[1:]); err == nil {
		owner = account.Username
	}
	return command.UsageError("%s belongs to %s: run this as that account: sudo -u %s genv remote …", path, owner, remote.Quote(owner))
}
