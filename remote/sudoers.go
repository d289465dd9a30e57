package remote

import "fmt"

// DefaultGenv is where genv is on a host unless somebody says otherwise.
const DefaultGenv = "/usr/local/bin/genv"

// SudoersLine is the line of sudoers(5) with which a controller that logs in as
// user can have a host enforced. It allows what a controller runs, and nothing
// that runs a program for its caller, as `genv lock` and `genv run` do. Where a
// command has no "*", sudo accepts it without further arguments alone.
func SudoersLine(user, genv string) string {
	return fmt.Sprintf("%s ALL=(root) NOPASSWD: %[2]s usage snapshot, %[2]s usage snapshot *, %[2]s usage execute, %[2]s usage serve *", user, genv)
}
