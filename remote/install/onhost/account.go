package onhost

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// lookAtAccount checks whether the account exists, has the key, and may log in.
func (i *installation) lookAtAccount(ctx context.Context, s *Survey) {
	account, err := i.accounts.Named(ctx, i.Account)
	if i.Account == "" {
		return
	}
	if err == nil {
		s.AccountUID = strconv.Itoa(int(account.UID))
	}
	if i.Key == "" {
		return
	}
	if err == nil { // the account reads its own file, so that root follows no link there
		_, _, err = i.runAs(ctx, &account, "", "grep", "-qxF", "--", i.Key, keysFile)
		s.HasKey = err == nil
	}
	sshd, _ := i.run(ctx, "sshd", "-T", "-C", "user="+i.Account+",host=localhost,addr=127.0.0.1")
	groups := []string{i.Account}
	if out, err := i.run(ctx, "id", "-Gn", "--", i.Account); err == nil {
		groups = strings.Fields(out)
	}
	for _, list := range []string{"AllowUsers", "DenyUsers", "AllowGroups", "DenyGroups"} {
		names := groups
		if strings.HasSuffix(list, "Users") {
			names = []string{i.Account}
		}
		if refuses(sshd, list, names) {
			s.SSHRefuses = append(s.SSHRefuses, list)
		}
	}
}

// refuses: the list of sshd_config is an allow list without any of the names, or a deny list with one. Entries for some
// machines may apply or not.
func refuses(sshd, list string, names []string) bool {
	denies, has, empty := strings.HasPrefix(list, "Deny"), false, true
	for line := range strings.Lines(sshd) {
		patterns, found := strings.CutPrefix(line, strings.ToLower(list)+" ")
		for _, pattern := range strings.Fields(patterns) {
			if !found {
				break
			}
			empty = false
			glob, _, some := strings.Cut(pattern, "@")
			has = has || !(denies && some) && slices.ContainsFunc(names, func(name string) bool {
				return text.MatchGlob([]byte(glob), []byte(name))
			})
		}
	}
	return has == denies && !empty
}

const keysFile = ".ssh/authorized_keys" // in the account's home

// makeAccount creates a missing account, and lets the key log in. It has no password, but a shell, as sshd needs one
// for commands.
func (i *installation) makeAccount(ctx context.Context, key string) error {
	if key == "" {
		return nil
	}
	account, err := i.accounts.Named(ctx, i.Account)
	if errors.Is(err, nss.ErrNoAccount) {
		group := []string{"--user-group"}
		if _, err := i.run(ctx, "getent", "group", i.Account); err == nil {
			group = []string{"--gid", i.Account}
		}
		_, err = i.run(ctx, "useradd", append(group, "--system", "--create-home", "--shell", "/bin/sh",
			"--password", "*", "--comment", "genv controller", i.Account)...)
		if err != nil {
			return err
		}
		i.made = "; the account " + i.Account + " was made, and stays"
		account, err = i.accounts.Named(ctx, i.Account)
	}
	if err != nil {
		return err
	}
	i.found.AccountUID = strconv.Itoa(int(account.UID))
	defer unix.Umask(unix.Umask(0o077))
	if _, _, err := i.runAs(ctx, &account, "", "mkdir", "-p", ".ssh"); err != nil {
		return err
	}
	if last, _, _ := i.runAs(ctx, &account, "", "tail", "-c", "1", keysFile); last != "" && last != "\n" {
		key = "\n" + key
	}
	_, _, err = i.runAs(ctx, &account, key+"\n", "tee", "-a", keysFile)
	return err
}

// removeKey makes the account remove a line from its own file.
func (i *installation) removeKey(ctx context.Context, account *nss.Account) error {
	left, _, err := i.runAs(ctx, account, "", "grep", "-vxF", "--", i.Key, keysFile)
	none, ok := errors.AsType[*exec.ExitError](err)
	if err != nil && !(ok && none.ExitCode() == 1 && left == "") { // no other line, or no file
		return nil //nolint:nilerr // what can't be read stays
	}
	defer unix.Umask(unix.Umask(0o077))
	const temp = keysFile + ".genv"
	if _, _, err = i.runAs(ctx, account, left, "tee", temp); err == nil {
		_, _, err = i.runAs(ctx, account, "", "mv", "-f", temp, keysFile)
	}
	return err
}
