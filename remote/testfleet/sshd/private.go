package sshd

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// privateVariable is the folder of the files of Private. If it is set, the program
// was started again and is in its own mount namespace.
const privateVariable = "GENV_TEST_PRIVATE"

// privateSudoers keeps no variable, whatever the machine's own rules keep.
const privateSudoers = `Defaults !syslog, !mail_badpass, !mail_no_user, !mail_no_host, !mail_no_perms, lecture=never
root ALL=(ALL:ALL) ALL
`

// Private gives this process accounts and rules of sudo of its own, so that
// tests do not depend on those of the machine: it starts the program again in a
// mount namespace where /etc/passwd and the others have root alone, and returns
// there. Call it first in TestMain, and remove when the tests are done. It does
// nothing for an ordinary user. Where root can have no namespace it fails, and
// the machine's own accounts stay.
func Private() (remove func(), err error) {
	remove = func() {}
	if dir, ok := os.LookupEnv(privateVariable); ok {
		return func() { _ = os.RemoveAll(dir) }, os.Unsetenv(privateVariable)
	}
	if os.Geteuid() != 0 {
		return remove, nil // nothing here is done as another user, or with sudo
	}
	dir, err := os.MkdirTemp("", "genv-private-")
	if err != nil {
		return remove, err
	}
	return remove, errors.Join(execPrivate(dir), os.RemoveAll(dir))
}

// execPrivate returns only when it failed; then this thread, which may be in
// another namespace than the others, is given to no goroutine any more.
func execPrivate(dir string) error {
	unix.Umask(0o022) // all users read these files
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	covers, err := writeEtc(dir, append(accountFiles(nil, nil),
		etcFile{"sudoers", 0o440, privateSudoers},
		etcFile{"zsh/zshenv", 0o644, ""})) // which zsh reads even with -f
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, c := range covers {
		if err := unix.Mount(c.Source, c.Target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("cover %s: %w", c.Target, err)
		}
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	args := append([]string{program}, os.Args[1:]...) // by its path, since a fuzz test starts itself again
	return unix.Exec(program, args, append(os.Environ(), privateVariable+"="+dir))
}
