// Package nss finds accounts and addresses as other programs do: by nsswitch.conf(5), which may name sssd, LDAP or
// mDNS. Without cgo, Go only reads /etc/passwd and /etc/hosts, and asks DNS; this package asks getent(1).
//
//	account, err := nss.Passwd{}.WithUID(ctx, 1001) // nss.ErrNoAccount if there certainly is none
//	addresses, err := nss.NewResolver().Addresses(ctx, "ip", "printer.local")
package nss

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Account is an entry of passwd(5).
type Account struct {
	Name, Home string
	UID        snapshot.UID
	GID        uint32
}

// Username is the name; "" if state files can't contain it.
func (a Account) Username() snapshot.Username {
	if snapshot.CheckName("the username", a.Name) != nil {
		return ""
	}
	return snapshot.Username(a.Name)
}

// ParseAccounts parses lines of passwd(5), and omits others.
func ParseAccounts(passwd []byte) (accounts []Account) {
	for line := range bytes.Lines(passwd) {
		fields := strings.Split(strings.TrimSuffix(string(line), "\n"), ":")
		if len(fields) != 7 || fields[0] == "" {
			continue
		}
		uid, err := strconv.ParseUint(fields[2], 10, 32)
		if gid, noGroup := strconv.ParseUint(fields[3], 10, 32); err == nil && noGroup == nil {
			accounts = append(accounts, Account{fields[0], fields[5], snapshot.UID(uid), uint32(gid)})
		}
	}
	return accounts
}

// ErrNoAccount says that there is certainly no such account. After any other error it is unknown.
var ErrNoAccount = errors.New("there is no such account")

const findWithin = 5 * time.Second

// Passwd finds accounts. The zero value is for this machine. Without cgo, os/user would take one from $USER and $HOME.
type Passwd struct {
	// File is read first, since an unreachable directory service takes seconds; empty for /etc/passwd.
	File string
	// Getent replaces the function Getent; nil for that.
	Getent   func(ctx context.Context, database string, keys ...string) ([]byte, error)
	Nsswitch string // names the directory services; empty for /etc/nsswitch.conf
}

// WithUID returns the account of a uid.
func (p Passwd) WithUID(ctx context.Context, uid snapshot.UID) (Account, error) {
	return p.find(ctx, strconv.FormatUint(uint64(uid), 10), func(a Account) bool { return a.UID == uid })
}

// Own returns the account of this process's user. It ignores $USER and $HOME.
func (p Passwd) Own(ctx context.Context) (Account, error) {
	return p.WithUID(ctx, snapshot.UID(os.Getuid())) //nolint:gosec // a uid
}

// Named returns the account with a name.
func (p Passwd) Named(ctx context.Context, name string) (Account, error) {
	named := func(a Account) bool { return a.Name == name }
	if strings.Trim(name, "0123456789") == "" { // getent(1) reads it as a uid
		all := p.All(ctx)
		if at := slices.IndexFunc(all, named); at >= 0 {
			return all[at], nil
		}
	}
	return p.find(ctx, name, named)
}

// Local returns the account of a uid in the file.
func (p Passwd) Local(uid snapshot.UID) (found Account, err error) {
	all, err := p.local()
	if at := slices.IndexFunc(all, func(a Account) bool { return a.UID == uid }); at >= 0 {
		return all[at], nil
	}
	return Account{}, cmp.Or(err, ErrNoAccount)
}

// Names returns those of a uid in the file and the directory; empty if there is none or it is unknown.
func (p Passwd) Names(ctx context.Context, uid snapshot.UID) (names []string) {
	all, _ := p.local() // the directory may know more
	for _, a := range all {
		if a.UID == uid {
			names = append(names, a.Name)
		}
	}
	if found, err := p.WithUID(ctx, uid); err == nil && !slices.Contains(names, found.Name) {
		names = append(names, found.Name)
	}
	return names
}

// All returns the accounts that getent(1) lists; those of the file if it fails or takes too long.
func (p Passwd) All(ctx context.Context) []Account {
	out, err := p.getent(ctx)
	if err != nil {
		all, _ := p.local() // without it there is none
		return all
	}
	return ParseAccounts(out)
}

func (p Passwd) local() ([]Account, error) {
	data, err := os.ReadFile(cmp.Or(p.File, "/etc/passwd"))
	return ParseAccounts(data), err
}

func (p Passwd) getent(ctx context.Context, keys ...string) ([]byte, error) {
	if p.Getent != nil {
		return p.Getent(ctx, "passwd", keys...)
	}
	return Getent(ctx, "passwd", keys...)
}

func (p Passwd) find(ctx context.Context, key string, wanted func(Account) bool) (Account, error) {
	all, fileErr := p.local()
	if at := slices.IndexFunc(all, wanted); at >= 0 {
		return all[at], nil
	}
	ctx, cancel := context.WithTimeout(ctx, findWithin)
	defer cancel()
	out, err := p.getent(ctx, key)
	all = ParseAccounts(out)
	at := slices.IndexFunc(all, wanted)
	switch {
	case err == nil && at >= 0:
		return all[at], nil
	case NotFound(err): // or a directory service is down
		nsswitch, _ := os.ReadFile(cmp.Or(p.Nsswitch, "/etc/nsswitch.conf")) // without it there is no directory
		err = cmp.Or(fileErr, Answering(ctx, "passwd", Directories(string(nsswitch), "passwd")), ErrNoAccount)
	case errors.Is(err, exec.ErrNotFound), err == nil && len(all) > 0: // without getent, the file has all
		err = cmp.Or(fileErr, ErrNoAccount)
	case err == nil:
		err = errors.New("its answer is not understood")
	}
	return Account{}, fmt.Errorf("getent passwd %s: %w", key, err)
}

// NotFound says whether getent(1) missed a key.
func NotFound(err error) bool {
	const status = 2
	exit, ok := errors.AsType[*exec.ExitError](err)
	return ok && exit.ExitCode() == status
}

// Directories lists the services of a database in nsswitch.conf(5) that ask others.
func Directories(nsswitch, database string) []string {
	return slices.DeleteFunc(Services(nsswitch, database), func(service string) bool {
		return slices.Contains([]string{"files", "compat", "db", "systemd"}, service)
	})
}

// Services lists the services of a database in nsswitch.conf(5), without their actions.
func Services(nsswitch, database string) (services []string) {
	for line := range strings.Lines(nsswitch) {
		rest, found := strings.CutPrefix(strings.TrimSpace(line), database+":")
		for _, word := range strings.Fields(rest) {
			if found && word[0] != '#' && !strings.ContainsAny(word, "[]=") {
				services = append(services, word)
			} else if word[0] == '#' {
				break
			}
		}
	}
	return services
}

// Answering returns an error if a directory service is down, which getent(1) reports like a missing entry. It asks for
// number 0, which is in the files, behind services that end the search if they don't answer.
func Answering(ctx context.Context, database string, directories []string) error {
	if len(directories) == 0 {
		return nil
	}
	config := database + ":"
	for _, service := range directories {
		config += service + " [UNAVAIL=return TRYAGAIN=return] "
	}
	if _, err := run(ctx, "getent", "-s", config+"files", database, "0"); err != nil {
		return fmt.Errorf("the directory service (%s) doesn't answer: %w", strings.Join(directories, ", "), err)
	}
	return nil
}

// Getent asks getent(1) for keys in a database such as passwd, or lists it without keys. It ends soon after ctx.
func Getent(ctx context.Context, database string, keys ...string) ([]byte, error) {
	if len(keys) > 0 {
		keys = append([]string{"--"}, keys...)
	}
	return run(ctx, "getent", append([]string{database}, keys...)...)
}

func run(ctx context.Context, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil && ctx.Err() != nil { // it was killed
		err = text.Late(context.Cause(ctx), 0)
	}
	return out, err
}
