package report

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/configfile"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/policycheck"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// noGroup is the group of users of whom none is known.
const noGroup = "(no group)"

// getentTimeout is how long the accounts of users may take.
const getentTimeout = 10 * time.Second

// groups are the groups of users that a policy has, by name.
func (p *program) groups(path string) (map[string][]string, error) {
	if path == "" || path == configfile.NoPolicy {
		return map[string][]string{}, nil
	}
	data, err := enforcement.ReadPolicyFile(path)
	if err != nil {
		return nil, err
	}
	parsed, err := policy.Parse(path, data)
	if err != nil {
		return nil, command.UsageError("%w; `genv policy check %s` lists all errors", err, path)
	}
	return parsed.Groups, nil
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
	for user, group := range primaryGroups(ctx, system.Getent, others) {
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
		for line := range strings.Lines(string(accounts)) {
			if fields := strings.Split(line, ":"); len(fields) > 3 {
				gids[fields[0]] = fields[3]
			}
		}
		names := make(map[string]string)
		if len(gids) > 0 {
			groups, _ := getent(ctx, "group", distinct(gids)...)
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

func distinct(values map[string]string) (list []string) {
	for _, value := range values {
		list = append(list, value)
	}
	slices.Sort(list)
	return slices.Compact(list)
}
