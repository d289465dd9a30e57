package state

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// namesWithin bounds the time for looking up user names.
const namesWithin = 5 * time.Second

// maxUnproven bounds how many users without a registered process are looked up: any
// user can register environments for any number of uids.
const maxUnproven = 64

// flagOwners marks the environments of which the kernel reports other owners. It is
// called without the lock, since looking up a user name can take seconds.
func (s *Store) flagOwners(ctx context.Context, f *Files) {
	ctx, cancel := context.WithTimeout(ctx, namesWithin)
	defer cancel()
	proven, process := make(map[snapshot.UID]bool), once(s.system.Process)
	for i := range f.Environments {
		env := &f.Environments[i]
		owners := make([]snapshot.UID, 0, len(env.PIDs))
		for _, pid := range env.PIDs {
			if p := process(pid); p.Liveness == Alive && p.Owner != nil {
				owners = append(owners, *p.Owner)
			}
		}
		env.OwnerMismatch = ownersDiffer(env.UID, owners)
		proven[env.UID] = proven[env.UID] || slices.Contains(owners, env.UID)
	}
	if s.username != nil {
		s.nameOwners(ctx, f, proven)
	}
}

// nameOwners sets the user names of the environments, first of those that have a
// registered process of their user.
func (s *Store) nameOwners(ctx context.Context, f *Files, proven map[snapshot.UID]bool) {
	unproven, unnamed := 0, 0
	name := once(func(uid snapshot.UID) snapshot.Username {
		if !proven[uid] {
			unproven++
		}
		if ctx.Err() != nil || unproven > maxUnproven && !proven[uid] {
			unnamed++
			return ""
		}
		return s.username(ctx, uid)
	})
	for _, first := range []bool{true, false} {
		for i := range f.Environments {
			if env := &f.Environments[i]; proven[env.UID] == first {
				env.OwnerMismatch = rename(env, name(env.UID)) || env.OwnerMismatch
			}
		}
	}
	if unnamed > 0 {
		f.warn("%d users of environments could not be named within %s, or have no process here", unnamed, namesWithin)
	}
}

// ownersDiffer says whether the owners of an environment's processes contradict its
// uid. Root's processes may be in any environment (sudo), but not alone.
func ownersDiffer(uid snapshot.UID, owners []snapshot.UID) bool {
	own := false
	for _, o := range owners {
		if o != uid && o != 0 {
			return true
		}
		own = own || o == uid
	}
	return len(owners) > 0 && !own
}

// rename sets the user name of an environment to that of its uid, and says whether
// envs.json had another one: the environment counts for its uid, not for the name in
// the file. An unknown name changes nothing.
func rename(env *snapshot.Environment, name snapshot.Username) (misnamed bool) {
	if name == "" || name == env.Username {
		return false
	}
	misnamed = env.Username != ""
	env.Username = name
	return misnamed
}

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
