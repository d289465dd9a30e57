package state

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// Users names users by their uid.
type Users struct {
	// Passwd is the file that is read first; empty for /etc/passwd. os/user would
	// take the word of USER for the user of this process where the file lacks him.
	Passwd string
	// Getent runs `getent passwd UID`, which also asks LDAP and its like; nil
	// is getent(1), where there is one, for two seconds at most.
	Getent func(ctx context.Context, uid string) ([]byte, error)
}

// Username is the name of a uid, or "" when it cannot be told. /etc/passwd is
// asked first, since an unreachable directory service can take seconds.
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

// parsePasswd takes the name from a passwd(5) line, name:x:uid:…, of that uid;
// "" where it is of another, or state could not hold the name.
func parsePasswd(line, uid string) snapshot.Username {
	fields := strings.Split(strings.TrimSuffix(line, "\n"), ":")
	if len(fields) != 7 || fields[2] != uid || snapshot.CheckName("the username", fields[0]) != nil {
		return ""
	}
	return snapshot.Username(fields[0])
}

func runGetent(ctx context.Context, uid string) ([]byte, error) {
	const patience = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "getent", "passwd", uid)
	cmd.WaitDelay = patience
	return cmd.Output()
}
