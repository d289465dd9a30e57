package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

// accountKey, in /etc/genv/config.yaml, names the account that root's `genv remote …` becomes. Only that account has
// keys and rights on the hosts.
const accountKey = "account"

// Personal is the category of a command below `genv remote` that root runs with its own ssh.
const Personal = "personal"

// AsAccount is the category of other commands that become the controller's account under root.
const AsAccount = "as the account"

// Configured is the category of a command that, with all below it, reads the configuration files.
const Configured = "configured"

// AskWithSudo is the next step for what root and the controller's account may do.
const AskWithSudo = "run it with sudo"

// Account returns the controller's account from /etc/genv/config.yaml; empty for none. The rest of the file is checked
// elsewhere.
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

// IsPerson reports whether a controller's account exists, and neither it nor root runs this process, which then needs
// no rights on the hosts.
func IsPerson(ctx context.Context, getenv func(string) string) bool {
	name, err := Account(getenv)
	if err != nil || name == "" || os.Geteuid() == 0 {
		return false
	}
	account, err := nss.Passwd{}.Named(ctx, name)
	return err != nil || int(account.UID) != os.Geteuid()
}

// OtherOwner is the owner of a file, or of the link itself, in the form that sudo accepts; empty for this user.
func OtherOwner(path string) (string, error) {
	var about unix.Stat_t
	if err := unix.Lstat(path, &about); err != nil {
		return "", &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if int(about.Uid) == os.Geteuid() {
		return "", nil
	}
	uid := strconv.FormatUint(uint64(about.Uid), 10)
	if owner, err := user.LookupId(uid); err == nil {
		return owner.Username, nil
	}
	return "#" + uid, nil
}

func becomeAccount(p *Program, c *cli.Context) error {
	if os.Geteuid() != 0 {
		return nil
	}
	if account, err := controllersAccount(c.Context, p.Getenv); err != nil || account.UID == 0 { // or there is none
		return err
	}
	code, err := relay(os.Args)
	if err != nil {
		return fmt.Errorf("start again as the controller's account: %w", err)
	}
	return &ExitError{Code: code}
}

func controllersAccount(ctx context.Context, getenv func(string) string) (account nss.Account, err error) {
	name, err := Account(getenv)
	if err != nil || name == "" {
		return account, err
	}
	if account, err = (nss.Passwd{}).Named(ctx, name); err != nil {
		return account, UsageError("%s of %s: %w", accountKey, systemConfig, err)
	}
	return account, nil
}

// AsAccountBeside is for a process named MonitorName: it runs this program with args (its name first) as the
// controller's account, and returns the exit code.
func AsAccountBeside(ctx context.Context, p Program, args []string) int {
	account, err := controllersAccount(ctx, p.Getenv)
	if err != nil {
		fmt.Fprintln(p.Err, "genv:", err)
		return ExitFailed
	}
	gid := account.GID
	credential := &syscall.Credential{Uid: uint32(account.UID), Gid: gid, Groups: []uint32{gid}}
	if local, err := user.Lookup(account.Name); err == nil {
		ids, _ := local.GroupIds() // without them it has its own group
		for _, id := range ids {
			if gid, err := strconv.ParseUint(id, 10, 32); err == nil {
				credential.Groups = append(credential.Groups, uint32(gid))
			}
		}
	}
	return monitor(&exec.Cmd{
		Path: "/proc/self/exe", Args: args, Env: environmentOf(account),
		SysProcAttr: &syscall.SysProcAttr{Credential: credential},
	})
}

// environmentOf keeps what root's environment says about display, and about reaching hooks.
func environmentOf(account nss.Account) []string {
	kept := []string{
		"PATH", "TERM", "COLORTERM", "NO_COLOR", "LANG", "LANGUAGE", "TZ",
		"http_proxy", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR",
	}
	prefixes := []string{"LC_", "GENV_", "PG"} // PostgreSQL's
	environ := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return !slices.Contains(kept, name) &&
			!slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	})
	return append(environ, "HOME="+account.Home, "USER="+account.Name, "LOGNAME="+account.Name)
}
