package nss

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	groupsAge     = 5 * time.Minute // after which an answer about groups is asked for again
	groupsKept    = 24 * time.Hour  // for how long an answer holds while there is no other
	groupsTimeout = 5 * time.Second // of each question, and of all that a single cycle waits for
	maxAsked      = 10_000          // people
	asksAtOnce    = 4
)

// Groups says who is in which Unix group, by NSS: as `id -G -- USER` and `getent group NAME` tell it. (getent initgroups
// leaves out the primary group, and answers for accounts that don't exist.) It never waits, but keeps the answers that
// Refresh got; with Wait, it asks at once. Its methods may be called at the same time.
type Groups struct {
	Now func() time.Time
	// Ask runs one of the two programs.
	Ask func(ctx context.Context, program string, args ...string) ([]byte, error)
	// Ready returns an error if the directory doesn't answer: the programs then leave out its groups.
	Ready func(context.Context) error
	// Wait is for how long Member may wait for answers in all; 0 for not at all.
	Wait time.Duration

	mu     sync.Mutex
	groups map[string]*groupAnswer // by name: its gid
	people map[string]*groupAnswer // their gids
}

// NewGroups returns groups about which nothing is known yet.
func NewGroups(now func() time.Time) *Groups {
	nsswitch, _ := os.ReadFile("/etc/nsswitch.conf") // without it there are files alone
	return &Groups{
		Ready: func(ctx context.Context) error { return Answering(ctx, Directories(string(nsswitch))) },
		Now:   now, groups: make(map[string]*groupAnswer), people: make(map[string]*groupAnswer),
		Ask: func(ctx context.Context, program string, args ...string) ([]byte, error) {
			command := exec.CommandContext(ctx, program, args...)
			command.WaitDelay = time.Second
			return command.Output() //nolint:wrapcheck // it is unknown, whatever the error
		},
	}
}

// groupAnswer is what is known of a group or person. A change holds when two answers agree that are apart by groupsAge.
type groupAnswer struct {
	gids    []string // sorted
	known   time.Time
	other   []string // another answer than gids, and when it came first
	since   time.Time
	asked   time.Time // when it was asked for last
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

// Member says whether an account is in a group, as far as that is known, and has it asked if it isn't.
func (g *Groups) Member(user, group string) (member, known bool) {
	g.mu.Lock()
	want(g.people, user)
	want(g.groups, group)
	wait := g.Wait > 0 && (g.people[user] != nil && g.people[user].asked.IsZero() || g.groups[group].asked.IsZero())
	g.mu.Unlock()
	if wait {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), g.Wait)
		g.Refresh(ctx)
		cancel()
		g.mu.Lock()
		g.Wait -= time.Since(begun)
		g.mu.Unlock()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	of, person, now := g.groups[group], g.people[user], g.Now()
	if !of.isKnown(now) || !person.isKnown(now) {
		return false, false
	}
	return slices.Contains(person.gids, of.gids[0]), true
}

func want(list map[string]*groupAnswer, name string) {
	if list[name] == nil && len(list) < maxAsked {
		list[name] = &groupAnswer{}
	}
}

// Refresh asks for what is asked for and isn't known, or was asked too long ago, until ctx ends.
func (g *Groups) Refresh(ctx context.Context) {
	g.mu.Lock()
	groups, people := g.due(g.groups), g.due(g.people)
	g.mu.Unlock()
	if len(groups)+len(people) == 0 {
		return
	}
	within, cancel := context.WithTimeout(ctx, groupsTimeout)
	ready := g.Ready(within)
	cancel()
	var all errgroup.Group
	all.SetLimit(asksAtOnce)
	for _, name := range groups {
		all.Go(func() error { return g.learn(ctx, ready, g.groups, name, gidOf, "getent", "--", "group", name) })
	}
	for _, name := range people {
		all.Go(func() error { return g.learn(ctx, ready, g.people, name, gidsOf, "id", "-G", "--", name) })
	}
	_ = all.Wait() // what failed is unknown
}

// due are the names to ask for, sorted.
func (g *Groups) due(list map[string]*groupAnswer) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if a := list[name]; !a.pending && (a.asked.IsZero() || g.Now().Sub(a.asked) >= groupsAge) {
			a.pending = true
			names = append(names, name)
		}
	}
	return names
}

func (g *Groups) learn(ctx context.Context, ready error, list map[string]*groupAnswer, name string,
	read func([]byte) ([]string, error), program string, args ...string,
) error {
	ctx, cancel := context.WithTimeout(ctx, groupsTimeout)
	defer cancel()
	var gids []string
	err := ready
	if err == nil {
		var out []byte
		if out, err = g.Ask(ctx, program, args...); err == nil {
			gids, err = read(out)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	list[name].learn(gids, err, g.Now())
	return nil
}

// gidOf reads a line of group(5).
func gidOf(line []byte) ([]string, error) {
	fields := strings.SplitN(strings.TrimSpace(string(line)), ":", 4)
	if len(fields) < 3 || !isNumber(fields[2]) {
		return nil, fmt.Errorf("%q is no line of a group", line[:min(len(line), 80)])
	}
	return fields[2:3], nil
}

// gidsOf reads what id -G prints.
func gidsOf(out []byte) ([]string, error) {
	gids := strings.Fields(string(out))
	if len(gids) == 0 || slices.ContainsFunc(gids, func(gid string) bool { return !isNumber(gid) }) {
		return nil, fmt.Errorf("%q are no group ids", out[:min(len(out), 80)])
	}
	return gids, nil
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// Run refreshes the answers until ctx ends: each second what is new, and all when it is due.
func (g *Groups) Run(ctx context.Context) {
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
