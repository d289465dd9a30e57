package state

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// Users names users by their uid.
type Users struct {
	// Passwd looks a uid up in /etc/passwd; nil reads it. os/user would take
	// the word of USER for the user of this process where the file lacks him.
	Passwd func(uid string) (*user.User, error)
	// Getent runs `getent passwd UID`, which also asks LDAP and its like; nil
	// is getent(1), where there is one, for two seconds at most.
	Getent func(ctx context.Context, uid string) ([]byte, error)
}

// Username is the name of a uid, or "" when it cannot be told. /etc/passwd is
// asked first, since an unreachable directory service can take seconds.
func (u Users) Username(ctx context.Context, uid snapshot.UID) snapshot.Username {
	id := strconv.FormatUint(uint64(uid), 10)
	passwd, getent := u.Passwd, u.Getent
	if passwd == nil {
		passwd = fromPasswd
	}
	if getent == nil {
		getent = runGetent
	}
	if found, err := passwd(id); err == nil {
		return checkedName(found.Username)
	}
	line, err := getent(ctx, id)
	if err != nil {
		return ""
	}
	return parsePasswd(string(line), id)
}

func fromPasswd(uid string) (*user.User, error) {
	data, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(data)) {
		if name := parsePasswd(line, uid); name != "" {
			return &user.User{Uid: uid, Username: string(name)}, nil
		}
	}
	return nil, fmt.Errorf("uid %s is not in /etc/passwd", uid)
}

// parsePasswd takes the name from a passwd(5) line, name:x:uid:…, of that uid.
func parsePasswd(line, uid string) snapshot.Username {
	fields := strings.Split(strings.TrimSuffix(line, "\n"), ":")
	if len(fields) != 7 || fields[2] != uid {
		return ""
	}
	return checkedName(fields[0])
}

// checkedName is the name, or "" if state could not hold it.
func checkedName(name string) snapshot.Username {
	if snapshot.CheckText("the username", name) != nil {
		return ""
	}
	return snapshot.Username(name)
}

func runGetent(ctx context.Context, uid string) ([]byte, error) {
	const patience = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "getent", "passwd", uid)
	cmd.WaitDelay = patience
	return cmd.Output()
}
