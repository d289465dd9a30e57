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
	"time"

	"github.com/seed-3119e985/genv/enforce/policy"
)

// Accounts are the users and groups that this machine knows, of those that were asked for.
type Accounts struct {
	Users, Groups map[string]bool
	// All are the users of this machine as far as it lists them, for suggestions.
	All []string
	// Err is why the users could not be asked for; nothing is known then.
	Err error
}

// Getent asks a database such as passwd for keys, or lists it without keys; see system.Getent.
type Getent func(ctx context.Context, database string, keys ...string) ([]byte, error)

const (
	// askWithin is how long the accounts are asked for in all. A directory service may be
	// slow, or down.
	askWithin = 5 * time.Second
	// listWithin is how long the list for suggestions may take.
	listWithin = time.Second
	// keysAtATime bounds a command line.
	keysAtATime = 500
)

// Ask asks for the users that references name, and for groups of the names that no user has.
func Ask(ctx context.Context, references []policy.Reference, getent Getent) Accounts {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	var names []string
	for i := range references {
		if r := &references[i]; r.Kind == policy.ToUser && !slices.Contains(names, r.Name) {
			names = append(names, r.Name)
		}
	}
	var a Accounts
	if a.Users, a.Err = ask(ctx, getent, "passwd", names); a.Err != nil {
		return a
	}
	unknown := slices.DeleteFunc(names, func(name string) bool { return a.Users[name] })
	if len(unknown) == 0 {
		return a
	}
	a.Groups, _ = ask(ctx, getent, "group", unknown) // it only makes a message better
	a.All = listed(ctx, getent)
	return a
}

// ask returns the names of a database's entries. A name that has none is missing in it.
func ask(ctx context.Context, getent Getent, database string, names []string) (map[string]bool, error) {
	found := make(map[string]bool)
	for part := range slices.Chunk(names, keysAtATime) {
		out, err := getent(ctx, database, part...)
		if err != nil && !notFound(err) {
			if ctx.Err() != nil {
				err = fmt.Errorf("no answer within %s", askWithin)
			}
			return nil, fmt.Errorf("getent %s: %w; the accounts may be in a directory that doesn't answer now", database, err)
		}
		for name := range entries(out) {
			found[name] = true
		}
	}
	return found, nil
}

// notFound says whether getent looked, and some keys have no entry.
func notFound(err error) bool {
	const someMissing = 2
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.ExitCode() == someMissing
}

// entries are the names in getent's lines.
func entries(out []byte) map[string]bool {
	names := make(map[string]bool)
	for line := range bytes.Lines(out) {
		if name, _, ok := strings.Cut(string(line), ":"); ok && name != "" {
			names[name] = true
		}
	}
	return names
}

// listed are all users that getent lists.
func listed(ctx context.Context, getent Getent) []string {
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	out, err := getent(ctx, "passwd")
	if err != nil {
		out, _ = os.ReadFile("/etc/passwd")
	}
	var names []string
	for name := range entries(out) {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
