package system

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
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
		getent = getentPasswd
	}
	line, err := getent(ctx, id)
	if err != nil {
		return ""
	}
	return parsePasswd(string(line), id)
}

// errNoAccount says that a uid has no account.
var errNoAccount = errors.New("no account has this uid")

// Home returns the home folder of a uid. Its error is errNoAccount if there is certainly no
// such account.
func (u Users) Home(ctx context.Context, uid snapshot.UID) (string, error) {
	id := strconv.FormatUint(uint64(uid), 10)
	data, err := os.ReadFile(cmp.Or(u.Passwd, "/etc/passwd"))
	if err != nil {
		return "", err
	}
	if home, ok := homeIn(string(data), id); ok {
		return home, nil
	}
	getent := u.Getent
	if getent == nil {
		getent = getentPasswd
	}
	data, err = getent(ctx, id)
	if home, ok := homeIn(string(data), id); ok && err == nil {
		return home, nil
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == getentNotFound {
		return "", errNoAccount
	}
	return "", cmp.Or(err, fmt.Errorf("getent passwd %s: not understood", id))
}

// getentNotFound is the exit status of getent(1) for a key that no database has.
const getentNotFound = 2

// homeIn finds the home folder of a uid in passwd(5) lines.
func homeIn(passwd, uid string) (home string, ok bool) {
	for line := range strings.Lines(passwd) {
		if fields := strings.Split(strings.TrimSuffix(line, "\n"), ":"); len(fields) == 7 && fields[2] == uid {
			return fields[5], true
		}
	}
	return "", false
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

// getentPasswd asks for an account while others wait for their turn.
func getentPasswd(ctx context.Context, uid string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return proc.Getent(ctx, "passwd", uid)
}

// FirstUID is the first uid of people, UID_MIN of login.defs(5): lower ones are those of system
// accounts.
var FirstUID = sync.OnceValue(func() snapshot.UID {
	data, _ := os.ReadFile("/etc/login.defs") // without it the usual one holds
	return firstUID(string(data))
})

func firstUID(loginDefs string) snapshot.UID {
	const usual = 1000
	for line := range strings.Lines(loginDefs) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "UID_MIN" {
			if n, err := strconv.ParseUint(fields[1], 0, 32); err == nil && n > 0 {
				return snapshot.UID(n)
			}
		}
	}
	return usual
}

// DescribeUser is a uid with its name in /etc/passwd. A directory service is not
// asked, since the lock is held.
func DescribeUser(uid uint32) string {
	if name := nameIn("/etc/passwd", strconv.FormatUint(uint64(uid), 10)); name != "" {
		return fmt.Sprintf("uid %d (%s)", uid, name)
	}
	return fmt.Sprintf("uid %d", uid)
}
