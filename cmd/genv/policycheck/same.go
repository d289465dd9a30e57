package policycheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// SameUsers finds the other names of accounts: of the users that a policy names, and of uids
// that have several names in /etc/passwd. Each user is known under the name that getent has for
// the uid. A name without an account is left as it is: it may have one on the hosts alone.
func SameUsers(ctx context.Context, names []string, getent Getent) (policy.Accounts, error) {
	passwd, _ := os.ReadFile("/etc/passwd") // without it there are no names in it
	return sameUsers(ctx, names, passwd, getent)
}

func sameUsers(ctx context.Context, names []string, passwd []byte, getent Getent) (policy.Accounts, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	local := uidsIn(passwd)
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return local[name] != "" || strings.Trim(name, "0123456789") == "" // getent takes a number for a uid
	})
	others, err := uidsOf(ctx, names, getent)
	if errors.Is(err, exec.ErrNotFound) { // then there is no directory either
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	of := make(map[string][]string) // the names of each uid
	for name, uid := range local {
		of[uid] = append(of[uid], name)
	}
	var uids []string
	for name, uid := range others {
		of[uid] = append(of[uid], name)
		uids = append(uids, uid)
	}
	for uid, all := range of {
		if len(all) > 1 {
			uids = append(uids, uid)
		}
	}
	preferred, err := accounts(ctx, slices.Compact(slices.Sorted(slices.Values(uids))), getent)
	if err != nil {
		return nil, err
	}
	same := make(policy.Accounts)
	for name, uid := range preferred {
		for _, other := range of[uid] {
			if other != name {
				same[snapshot.Username(other)] = snapshot.Username(name)
			}
		}
	}
	return same, nil
}

// uidsOf are the uids of names. A directory may answer with another name, the one that it
// prefers: such names are asked for one by one.
func uidsOf(ctx context.Context, names []string, getent Getent) (map[string]string, error) {
	found, err := accounts(ctx, names, getent)
	if err != nil {
		return nil, err
	}
	uids, others := make(map[string]string), false
	for name, uid := range found {
		if slices.Contains(names, name) {
			uids[name] = uid
		} else {
			others = true
		}
	}
	for _, name := range names {
		if uids[name] != "" || !others {
			continue
		}
		found, err := accounts(ctx, []string{name}, getent)
		if err != nil {
			return nil, err
		}
		for _, uid := range found {
			uids[name] = uid
		}
	}
	return uids, nil
}

// accounts are the uids that getent has for keys, by name.
func accounts(ctx context.Context, keys []string, getent Getent) (map[string]string, error) {
	var lines []byte
	for part := range slices.Chunk(keys, keysAtATime) {
		out, err := getent(ctx, "passwd", part...)
		if err != nil && !notFound(err) {
			if ctx.Err() != nil {
				err = fmt.Errorf("no answer within %s", askWithin)
			}
			return nil, fmt.Errorf("getent passwd: %w", err)
		}
		lines = append(lines, out...)
	}
	return uidsIn(lines), nil
}

// uidsIn are the uids of the accounts in lines of passwd(5), by name.
func uidsIn(passwd []byte) map[string]string {
	uids := make(map[string]string)
	for line := range bytes.Lines(passwd) {
		if fields := strings.Split(string(line), ":"); len(fields) == 7 && text.CheckUsername(fields[0]) == nil {
			uids[fields[0]] = fields[2]
		}
	}
	return uids
}
