package remote

import "fmt"

// DefaultGenv is the default path of genv on a host.
const DefaultGenv = "/usr/local/bin/genv"

// SudoersLine is the line of sudoers(5) for a controller that logs in as user. It
// allows the commands of a controller, but none that runs a program for its caller,
// such as `genv lock` and `genv run`. Where a command has no "*", sudo only accepts
// it without further arguments.
func SudoersLine(user, genv string) string {
	return fmt.Sprintf("%s ALL=(root) NOPASSWD: %[2]s usage snapshot, %[2]s usage snapshot *, %[2]s usage execute, %[2]s usage serve *", user, genv)
}
