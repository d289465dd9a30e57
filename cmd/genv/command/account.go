package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

// accountKey is what the config.yaml in /etc/genv alone may have besides flags: the account that root's
// `genv remote …` becomes, so that a fleet has one account with keys and rights on the hosts.
const accountKey = "account"

// Personal is the category of a command below `genv remote` that works with the ssh of whoever runs it, root too.
const Personal = "personal"

// AsAccount is the category of a command elsewhere that runs as the controller's account if root starts it.
const AsAccount = "as the account"

// Configured is the category of a command that reads the configuration files, with all below it.
const Configured = "configured"

// AskWithSudo is the next step for what root and the controller's account may do.
const AskWithSudo = "run it with sudo"

// Account returns the controller's account by the config.yaml in /etc/genv; empty if that names none. What
// else is in the file is checked where it is used.
func Account(getenv func(string) string) (string, error) {
	if !slices.Contains(ConfigPaths(getenv, ConfigFile), systemConfig) {
		return "", nil
	}
	data, err := readAll(systemConfig)
	if errors.Is(err, fs.ErrNotExist) || err == nil && isEmpty(data) {
		return "", nil
	}
	if err != nil {
		return "", UsageError("%w", err)
	}
	account := ""
	doc := strictyaml.Parse(systemConfig, data)
	doc.Root().Each(func(key, value *strictyaml.Node) {
		if key.Text() == accountKey {
			account = oneWord(value)[0]
		}
	})
	if err := doc.Err(); err != nil {
		return "", UsageError("%w", err)
	}
	return account, nil
}

// IsPerson reports whether there is a controller's account, and this process is neither it nor root: its user has
// no rights on the hosts, and needs none.
func IsPerson(ctx context.Context, getenv func(string) string) bool {
	name, err := Account(getenv)
	if err != nil || name == "" || os.Geteuid() == 0 {
		return false
	}
	account, err := nss.Passwd{}.Named(ctx, name)
	return err != nil || int(account.UID) != os.Geteuid()
}

// becomeAccount starts this program again as the controller's account, if it is root's and there is one.
func becomeAccount(p *Program, c *cli.Context) error {
	if os.Geteuid() != 0 {
		return nil
	}
	name, err := Account(p.Getenv)
	if err != nil || name == "" {
		return err
	}
	account, err := nss.Passwd{}.Named(c.Context, name)
	switch {
	case err != nil:
		return UsageError("%s of %s: %w", accountKey, systemConfig, err)
	case account.UID == 0:
		return nil
	}
	uid, gid := int(account.UID), int(account.GID)
	groups := []int{gid}
	if local, err := user.Lookup(name); err == nil {
		groups = append(groups, groupsOf(local)...)
	}
	err = errors.Join(unix.Setgroups(groups), unix.Setresgid(gid, gid, gid), unix.Setresuid(uid, uid, uid))
	if err != nil {
		return fmt.Errorf("become %s: %w", name, err)
	}
	return fmt.Errorf("start again as %s: %w", name, unix.Exec("/proc/self/exe", os.Args, environmentOf(account)))
}

func groupsOf(account *user.User) (gids []int) {
	ids, _ := account.GroupIds() // without them it has its own group
	for _, id := range ids {
		if gid, err := strconv.Atoi(id); err == nil {
			gids = append(gids, gid)
		}
	}
	return gids
}

// environmentOf is this process's environment, with the account's home and without what leads to root's keys and
// folders.
func environmentOf(account nss.Account) []string {
	roots := []string{"HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK"}
	own := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return strings.HasPrefix(name, "XDG_") || slices.Contains(roots, name)
	})
	return append(own, "HOME="+account.Home, "USER="+account.Name, "LOGNAME="+account.Name)
}
