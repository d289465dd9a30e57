package disk

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// Users looks up the names of users.
type Users struct {
	// Passwd is the file that is read first; empty for /etc/passwd. os/user is not
	// used, since it believes $USER if the file lacks the user of this process.
	Passwd string
	// Getent runs `getent passwd UID`, which also asks directory services such as
	// LDAP; nil runs getent(1), if it is installed, for two seconds at most.
	Getent func(ctx context.Context, uid string) ([]byte, error)
}

// Username returns the name of a uid, or "" if it is unknown. /etc/passwd comes first,
// since an unreachable directory service can take seconds.
func (u Users) Username(ctx context.Context, uid snapshot.UID) snapshot.Username {
	id := strconv.FormatUint(uint64(uid), 10)
	if name := nameIn(cmp.Or(u.Passwd, "/etc/passwd"), id); name != "" {
		return name
	}
	getent := u.Getent
	if getent == nil {
		getent = runGetent
	}
	line, err := getent(ctx, id)
	if err != nil {
		return ""
	}
	return parsePasswd(string(line), id)
}

// nameIn looks a uid up in a file like /etc/passwd.
func nameIn(passwd, uid string) snapshot.Username {
	data, err := os.ReadFile(passwd)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if name := parsePasswd(line, uid); name != "" {
			return name
		}
	}
	return ""
}

// parsePasswd returns the name in a passwd(5) line, name:x:uid:…, or "" if the line is
// of another uid, or if the state files can't hold the name.
func parsePasswd(line, uid string) snapshot.Username {
	fields := strings.Split(strings.TrimSuffix(line, "\n"), ":")
	if len(fields) != 7 || fields[2] != uid || snapshot.CheckName("the username", fields[0]) != nil {
		return ""
	}
	return snapshot.Username(fields[0])
}

func runGetent(ctx context.Context, uid string) ([]byte, error) {
	const timeout = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "getent", "passwd", uid)
	cmd.WaitDelay = timeout
	return cmd.Output()
}

// describeUser is a uid with its name in /etc/passwd. A directory service is not
// asked, since the lock is held.
func describeUser(uid uint32) string {
	if name := nameIn("/etc/passwd", strconv.FormatUint(uint64(uid), 10)); name != "" {
		return fmt.Sprintf("uid %d (%s)", uid, name)
	}
	return fmt.Sprintf("uid %d", uid)
}
