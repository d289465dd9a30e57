package operators

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// accountsWithin is how long accounts are asked for in all. A directory service may be slow, or down.
const accountsWithin = 3 * time.Second

// knownNames are the hosts and users that an exemption may name. The controller knows the users who have or use GPUs;
// other users have an account on this machine, or on the hosts alone.
type knownNames struct {
	hosts, users []string // of the controller; no hosts if they aren't known
	account      func(name string) error
	accounts     func() []string // for suggestions
}

// checkNames refuses to exempt a host or a user that certainly doesn't exist: nothing would be protected. Where that
// can't be known it warns.
func (o *controllerOptions) checkNames(ctx context.Context, at exemptions, actions ...operator.Instruction) error {
	ctx, cancel := context.WithTimeout(ctx, accountsWithin)
	defer cancel()
	var known knownNames
	known.hosts, known.users = at.names(ctx)
	known.account = func(name string) error {
		_, err := nss.Passwd{}.Named(ctx, name)
		return err //nolint:wrapcheck // it names the account
	}
	known.accounts = func() (names []string) {
		for _, a := range (nss.Passwd{}).All(ctx) {
			names = append(names, a.Name)
		}
		return names
	}
	for i := range actions {
		a := &actions[i]
		if a.Kind != operator.Exempt {
			continue
		}
		warning, err := known.check(string(a.Host), string(a.User))
		if err != nil {
			return err
		}
		if warning != "" {
			o.Warn(warning)
		}
	}
	return nil
}

// check returns an error if a host or a user certainly doesn't exist, and a warning if nothing can be said about the
// user. Either name may be empty.
func (k *knownNames) check(host, user string) (warning string, err error) {
	if host != "" && len(k.hosts) > 0 && !slices.Contains(k.hosts, host) {
		return "", command.UsageError("there is no host %s; %s", text.Shown(host),
			text.Hint(host, k.hosts, "genv remote hosts lists them"))
	}
	if user == "" || isUID(user) || slices.Contains(k.users, user) {
		return "", nil
	}
	err = k.account(user)
	switch {
	case err == nil:
		return "", nil
	case !errors.Is(err, nss.ErrNoAccount):
		return fmt.Sprintf("warning: whether there is a user %s is unknown: %v", text.Shown(user), err), nil
	case len(k.users) == 0 || slices.ContainsFunc(k.users, func(name string) bool {
		return !isUID(name) && k.account(name) != nil
	}):
		return fmt.Sprintf("warning: user %s has no account on this machine, as users of hosts may, and no GPU now: "+
			"check the spelling", text.Shown(user)), nil
	}
	hint := text.Hint(user, slices.Concat(k.users, k.accounts()), "check the spelling.")
	return "", command.UsageError("no user %s has an account on this machine or a GPU now; %s If the account is only "+
		"on the hosts, name it under `exempt:` in the policy",
		text.Shown(user), hint)
}

// isUID reports whether a user is one without a name, as "uid 1004".
func isUID(name string) bool {
	n, found := strings.CutPrefix(name, "uid ")
	_, err := strconv.ParseUint(n, 10, 32)
	return found && err == nil
}
