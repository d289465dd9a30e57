package report

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/policycheck"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// noGroup is the group of users of whom none is known.
const noGroup = "(no group)"

// getentTimeout is how long the accounts of users may take.
const getentTimeout = 10 * time.Second

func policyFile(path string) (*policy.File, error) {
	if path == "" || path == command.NoPolicy {
		return policy.Default(), nil
	}
	return policycheck.ReadPolicy(path)
}

// groupsOf are the groups of users: of those that are given, by name, or else the primary group of the account on this
// machine.
func groupsOf(ctx context.Context, groups map[string][]string, users []string) func(user string) []string {
	of := make(map[string][]string)
	for group, members := range groups {
		for _, user := range members {
			of[user] = append(of[user], group)
		}
	}
	var others []string
	for _, user := range users {
		if len(of[user]) == 0 && usage.IsNamed(user) && !strings.ContainsAny(user, " ()") {
			others = append(others, user)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, getentTimeout)
	defer cancel()
	for user, group := range primaryGroups(ctx, nss.Getent, others) {
		of[user] = []string{group}
	}
	return func(user string) []string {
		if groups := of[user]; len(groups) > 0 {
			return groups
		}
		return []string{noGroup}
	}
}

// primaryGroups asks the system for the groups of users. Those that it doesn't know have none.
func primaryGroups(ctx context.Context, getent policycheck.Getent, users []string) map[string]string {
	found := make(map[string]string)
	for part := range slices.Chunk(users, 200) {
		accounts, _ := getent(ctx, "passwd", part...) // it fails if it doesn't know one of them
		gids := make(map[string]string)
		for _, account := range nss.ParseAccounts(accounts) {
			gids[account.Name] = fmt.Sprint(account.GID)
		}
		names := make(map[string]string)
		if len(gids) > 0 {
			groups, _ := getent(ctx, "group", slices.Compact(slices.Sorted(maps.Values(gids)))...)
			for line := range strings.Lines(string(groups)) {
				if fields := strings.Split(line, ":"); len(fields) > 2 {
					names[fields[2]] = fields[0]
				}
			}
		}
		for user, gid := range gids {
			if names[gid] != "" {
				found[user] = names[gid]
			}
		}
	}
	return found
}

// keyFile has the key of pseudonyms, in the folder of a controller. With the same key a user always has the same
// pseudonym, and who has it can find out the user's name.
const (
	keyFile = "pseudonyms.key"
	keySize = 32 // bytes
)

// pseudonyms replace names of users after a time, if it isn't 0. dir is the folder in which a loop keeps its memory.
func pseudonyms(dir string, after time.Duration) (store.Pseudonyms, error) {
	if after == 0 {
		return store.Pseudonyms{}, nil
	}
	key, err := ensureKey(dir)
	if err != nil {
		return store.Pseudonyms{}, fmt.Errorf("the key of pseudonyms: %w", err)
	}
	return store.Pseudonyms{After: after, Of: func(user string) string { return usage.Pseudonym(key, user) }}, nil
}

// ensureKey reads the key in a folder, and makes it if there is none. It is safe on disk before it is used.
func ensureKey(dir string) ([]byte, error) {
	opened, err := folder.OpenExisting(dir)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	file, err := opened.Lock(keyFile, 10*time.Second) // another process may be making it
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && info.Size() == 0 {
		key := make([]byte, keySize)
		_, _ = rand.Read(key) // it never fails
		_, err = file.Write(key)
		err = errors.Join(err, file.Sync(), opened.Sync())
	}
	if err != nil {
		return nil, err
	}
	return readKey(opened)
}

// readKey reads a key, which must be private.
func readKey(f *folder.Folder) ([]byte, error) {
	key, status, err := f.Read(keyFile, 1<<20)
	switch path := f.Join(keyFile); {
	case err != nil:
		return nil, err
	case status.Mode&0o077 != 0:
		return nil, fmt.Errorf("other users can read it: chmod 600 %s", path)
	case len(key) != keySize:
		return nil, fmt.Errorf("%s has %d bytes, not %d: copy it again from where it was made, or remove it, and "+
			"users get other pseudonyms", path, len(key), keySize)
	}
	return key, nil
}
