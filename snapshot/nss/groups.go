package nss

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	groupsAge     = 5 * time.Minute // after which to ask again
	groupsKept    = 24 * time.Hour  // of an answer without a newer one
	groupsTimeout = 5 * time.Second // of each question, and of a single cycle's
	maxAsked      = 10_000          // people
	asksAtOnce    = 8
)

// GroupMembers knows the members of Unix groups from `id -G -- USER` and `getent group NAME`. (getent initgroups omits
// the primary group, and answers for accounts that don't exist.) It keeps the answers that Refresh got, and waits for
// none without Wait. It is safe for concurrent use.
type GroupMembers struct {
	Now func() time.Time
	// Ask runs one of the two programs.
	Ask func(ctx context.Context, program string, args ...string) ([]byte, error)
	// Ready returns an error if the directory doesn't answer: the programs then omit its groups.
	Ready func(context.Context) error
	Wait  time.Duration // total time for Member to wait for answers

	mu     sync.Mutex
	groups map[string]*groupAnswer // by name: its gid
	people map[string]*groupAnswer // their gids
}

// NewGroups returns groups without any answers.
func NewGroups(now func() time.Time) *GroupMembers {
	return &GroupMembers{
		Ask: run, Ready: directoriesReady, Now: now,
		groups: make(map[string]*groupAnswer), people: make(map[string]*groupAnswer),
	}
}

// directoriesReady asks all sources of accounts or groups: `id -G` silently omits those of one that is down.
func directoriesReady(ctx context.Context) error {
	nsswitch, _ := os.ReadFile("/etc/nsswitch.conf") // without it there are only files
	if err := Answering(ctx, "passwd", Directories(string(nsswitch), "passwd")); err != nil {
		return err
	}
	return Answering(ctx, "group",
		append(Directories(string(nsswitch), "group"), Directories(string(nsswitch), "initgroups")...))
}

// groupAnswer is what is known about a group or person. A change counts when two answers groupsAge apart agree.
type groupAnswer struct {
	gids    []string // sorted
	known   time.Time
	other   []string // another answer than gids, and its first time
	since   time.Time
	asked   time.Time // the last question
	wanted  time.Time // the last need
	pending bool
}

func (a *groupAnswer) learn(gids []string, err error, now time.Time) {
	a.asked, a.pending = now, false
	slices.Sort(gids)
	switch {
	case err != nil:
	case a.known.IsZero() || now.Sub(a.known) > groupsKept || slices.Equal(gids, a.gids):
		a.gids, a.known, a.other = gids, now, nil
	case a.other == nil || !slices.Equal(gids, a.other):
		a.other, a.since, a.known = gids, now, now
	case now.Sub(a.since) >= groupsAge:
		a.gids, a.known, a.other = gids, now, nil
	}
}

func (a *groupAnswer) isKnown(now time.Time) bool {
	return a != nil && !a.known.IsZero() && now.Sub(a.known) <= groupsKept
}

// Want lets accounts be asked for together, before the first call of Member.
func (g *GroupMembers) Want(users ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, user := range users {
		g.want(g.people, user)
	}
}

// Member says whether an account is in a group; if unknown, it lets Refresh ask.
func (g *GroupMembers) Member(user, group string) (member, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	person, of := g.want(g.people, user), g.want(g.groups, group)
	if g.Wait > 0 && (person.isNew() || of.isNew()) {
		ctx, cancel := context.WithTimeout(context.Background(), g.Wait)
		begun := time.Now()
		g.mu.Unlock()
		g.Refresh(ctx)
		g.mu.Lock()
		cancel()
		g.Wait -= time.Since(begun)
	}
	if now := g.Now(); !of.isKnown(now) || !person.isKnown(now) {
		return false, false
	}
	return slices.Contains(person.gids, of.gids[0]), true
}

func (g *GroupMembers) want(list map[string]*groupAnswer, name string) *groupAnswer {
	if list[name] == nil && len(list) >= maxAsked { // unknown names make room
		unknown := func(_ string, a *groupAnswer) bool { return !a.pending && !a.isNew() && a.known.IsZero() }
		maps.DeleteFunc(list, unknown)
	}
	if list[name] == nil && len(list) < maxAsked {
		list[name] = &groupAnswer{}
	}
	if list[name] != nil {
		list[name].wanted = g.Now()
	}
	return list[name]
}

func (a *groupAnswer) isNew() bool { return a != nil && a.asked.IsZero() }

// Refresh asks for wanted answers that are unknown or old, until ctx ends.
func (g *GroupMembers) Refresh(ctx context.Context) {
	g.mu.Lock()
	groups, people := g.due(g.groups), g.due(g.people)
	g.mu.Unlock()
	if len(groups)+len(people) == 0 {
		return
	}
	within, cancel := context.WithTimeout(ctx, groupsTimeout)
	ready := g.Ready(within)
	cancel()
	g.ask(ctx, ready, g.groups, groups, g.gidOf)
	g.ask(ctx, cmp.Or(ready, g.lost()), g.people, people, g.gidsOf)
}

// lost is an error if a known group of the last hour isn't found: `id -G` omits it, and people may still be in it.
func (g *GroupMembers) lost() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, a := range g.groups {
		if now := g.Now(); a.isKnown(now) && a.asked.After(a.known) && now.Sub(a.wanted) < time.Hour {
			return fmt.Errorf("there is no answer about group %q", name)
		}
	}
	return nil
}

// due lists the names to ask for, sorted. It forgets those not wanted for a day.
func (g *GroupMembers) due(list map[string]*groupAnswer) (names []string) {
	now := g.Now()
	maps.DeleteFunc(list, func(_ string, a *groupAnswer) bool { return !a.pending && now.Sub(a.wanted) > groupsKept })
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if a := list[name]; !a.pending && (a.asked.IsZero() || now.Sub(a.asked) >= groupsAge) {
			a.pending = true
			names = append(names, name)
		}
	}
	return names
}

func (g *GroupMembers) ask(ctx context.Context, err error, list map[string]*groupAnswer, names []string,
	ask func(context.Context, string) ([]string, error),
) {
	var all errgroup.Group
	all.SetLimit(asksAtOnce)
	for _, name := range names {
		all.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, groupsTimeout)
			defer cancel()
			gids, err := []string(nil), err
			if err == nil {
				gids, err = ask(ctx, name)
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			list[name].learn(gids, err, g.Now())
			return nil
		})
	}
	_ = all.Wait() // errors leave answers unknown
}

func (g *GroupMembers) gidOf(ctx context.Context, group string) ([]string, error) {
	line, err := g.Ask(ctx, "getent", "--", "group", group)
	if err != nil {
		return nil, err
	}
	fields := strings.SplitN(strings.TrimSpace(string(line)), ":", 4)
	if len(fields) < 3 || !isNumber(fields[2]) || isNumber(group) && fields[0] != group { // read as a gid
		return nil, fmt.Errorf("%q is not the line of the group", line[:min(len(line), 80)])
	}
	return fields[2:3], nil
}

// gidsOf asks for the gids of an account. id(1) reads digits as a uid unless they are a name, and +0 always.
func (g *GroupMembers) gidsOf(ctx context.Context, user string) ([]string, error) {
	if isNumber(strings.TrimPrefix(user, "+")) {
		name, err := g.Ask(ctx, "id", "-un", "--", user)
		if err != nil || strings.TrimSpace(string(name)) != user {
			return nil, fmt.Errorf("%q is not the name of an account", user)
		}
	}
	out, err := g.Ask(ctx, "id", "-G", "--", user)
	if err != nil {
		return nil, err
	}
	gids := strings.Fields(string(out))
	if len(gids) == 0 || slices.ContainsFunc(gids, func(gid string) bool { return !isNumber(gid) }) {
		return nil, fmt.Errorf("%q are no group ids", out[:min(len(out), 80)])
	}
	return gids, nil
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// Run refreshes until ctx ends: each second what is new, and the rest when due.
func (g *GroupMembers) Run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		g.Refresh(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
