package policycheck

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// KnownNames are the users and groups that exist on this machine, of the names that were asked for.
type KnownNames struct {
	Users, Groups map[string]bool
	UnixGroups    map[string]bool // that the policy names as %group
	// All are the listed users of this machine, for suggestions.
	All []string
	Err error
}

// Getent looks up keys in a database such as passwd, or lists it without keys; see nss.Getent.
type Getent func(ctx context.Context, database string, keys ...string) ([]byte, error)

const askWithin = 5 * time.Second // for all accounts: a directory service may be slow, or down

// Ask looks up the users of references, and groups with the names of missing users.
func Ask(ctx context.Context, references []policy.Reference, getent Getent) KnownNames {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	var names, unix []string
	for i := range references {
		switch r := &references[i]; {
		case r.Kind == policy.ToUser && !slices.Contains(names, r.Name):
			names = append(names, r.Name)
		case r.Kind == policy.ToUnixGroup:
			unix = append(unix, r.Name)
		}
	}
	users, err := lines(ctx, getent, "passwd", names)
	unixGroups, groupErr := lines(ctx, getent, "group", unix)
	if err = cmp.Or(err, groupErr); err != nil {
		return KnownNames{Err: fmt.Errorf("%w; the accounts may be in a directory that doesn't answer now", err)}
	}
	a := KnownNames{Users: entries(users), UnixGroups: entries(unixGroups)}
	unknown := slices.DeleteFunc(names, func(name string) bool { return a.Users[name] })
	if len(unknown) == 0 {
		return a
	}
	groups, _ := lines(ctx, getent, "group", unknown) // on error only a message is less exact
	a.Groups = entries(groups)
	listing, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, account := range (nss.Passwd{Getent: getent}).All(listing) {
		a.All = append(a.All, account.Name)
	}
	slices.Sort(a.All)
	for _, name := range unknown {
		if slices.Contains(a.All, name) { // getent takes a name of digits for a uid
			a.Users[name] = true
		}
	}
	return a
}

func lines(ctx context.Context, getent Getent, database string, keys []string) (lines []byte, err error) {
	for part := range slices.Chunk(keys, 500) {
		out, err := getent(ctx, database, part...)
		if err != nil && !nss.NotFound(err) {
			if ctx.Err() != nil {
				err = fmt.Errorf("no answer within %s", askWithin)
			}
			return nil, fmt.Errorf("getent %s: %w", database, err)
		}
		lines = append(lines, out...)
	}
	return lines, nil
}

func entries(out []byte) map[string]bool {
	names := make(map[string]bool)
	for line := range bytes.Lines(out) {
		if name, _, ok := strings.Cut(string(line), ":"); ok && name != "" {
			names[name] = true
		}
	}
	return names
}

// SameUsers finds other names of accounts: of a policy's users, and of uids with several names in /etc/passwd. The name
// that getent has for the uid counts. A name without an account stays, because only the hosts may know it.
func SameUsers(ctx context.Context, names []string, getent Getent) (policy.Aliases, error) {
	passwd, _ := os.ReadFile("/etc/passwd") // missing counts as empty
	return sameUsers(ctx, names, passwd, getent)
}

func sameUsers(ctx context.Context, names []string, passwd []byte, getent Getent) (policy.Aliases, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	local := uidsIn(passwd)
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return local[name] != "" || strings.Trim(name, "0123456789") == "" // getent takes a number for a uid
	})
	others, err := uidsOf(ctx, names, getent)
	if errors.Is(err, exec.ErrNotFound) { // no getent, so no directory
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	maps.Copy(local, others)
	uids := slices.Collect(maps.Values(others))
	of := make(map[string][]string) // the names of each uid
	for name, uid := range local {
		if of[uid] = append(of[uid], name); len(of[uid]) == 2 {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	preferred, err := accounts(ctx, slices.Compact(uids), getent)
	if err != nil {
		return nil, err
	}
	same := make(policy.Aliases)
	for name, uid := range preferred {
		for _, other := range of[uid] {
			if other != name {
				same[snapshot.Username(other)] = snapshot.Username(name)
			}
		}
	}
	return same, nil
}

// uidsOf looks names up one by one if the directory answers with other names, which it prefers.
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

func accounts(ctx context.Context, keys []string, getent Getent) (map[string]string, error) {
	out, err := lines(ctx, getent, "passwd", keys)
	if err != nil {
		return nil, err
	}
	return uidsIn(out), nil
}

func uidsIn(passwd []byte) map[string]string {
	uids := make(map[string]string)
	for _, account := range nss.ParseAccounts(passwd) {
		if text.CheckUsername(account.Name) == nil {
			uids[account.Name] = fmt.Sprint(account.UID)
		}
	}
	return uids
}
