package install

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/seed-3119e985/genv/remote"
)

// SudoersFolder is the folder of sudoers(5) with files for each purpose; the file of
// genv has the name RulesFile.
const (
	SudoersFolder = "/etc/sudoers.d"
	RulesFile     = "genv"
)

// securePath is where root's genv looks for programs, such as nvidia-smi.
const securePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Sudoers is the file with which these accounts may run, as root and without a password,
// what a controller runs of the genv at path, and nothing else.
func Sudoers(path string, accounts ...string) string {
	var b strings.Builder
	b.WriteString("# Written by `genv remote install`. It allows what a controller of genv runs on a host.\n")
	b.WriteString(defaults(path) + "\n")
	for _, account := range accounts {
		b.WriteString(strings.ReplaceAll(remote.SudoersLine(account, path), ", ", ", \\\n\t") + "\n")
	}
	return b.String()
}

func defaults(path string) string {
	return fmt.Sprintf("Defaults!%s secure_path=%q", path, securePath)
}

var (
	account = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,31}$`) })
	// alias is what sudoers takes for the name of an alias, such as ALL.
	alias   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`) })
	program = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(/[A-Za-z0-9_+-][A-Za-z0-9_.+-]*){1,20}$`) })
)

// CheckAccount refuses names that mean something else in sudoers than one account.
func CheckAccount(name string) error {
	switch {
	case !account().MatchString(name):
		return fmt.Errorf("%q is not a name for which a line of sudoers can be written: use letters, digits, '_', '.' and '-'", name)
	case alias().MatchString(name):
		return fmt.Errorf("sudoers takes %q for an alias: use an account with a lower-case letter in its name", name)
	}
	return nil
}

// CheckPath refuses places of the program that don't fit into sudoers or a shell, or that
// sudo wouldn't find by the name of genv.
func CheckPath(path string) error {
	switch {
	case len(path) > 200 || !program().MatchString(path):
		return fmt.Errorf("%q: write an absolute path of letters, digits and . _ + -, such as %s", path, remote.DefaultGenv)
	case !strings.HasSuffix(path, "/genv"):
		return fmt.Errorf("%q: the program must be named genv, as in %s", path, remote.DefaultGenv)
	}
	return nil
}

// rulesOf reads the accounts from a file that Sudoers wrote, or somebody who followed the
// documentation; false if it has anything else.
func rulesOf(lines []string, path string) (accounts []string, ok bool) {
	joined := strings.ReplaceAll(strings.Join(lines, "\n"), "\\\n", " ")
	for line := range strings.SplitSeq(joined, "\n") {
		line = strings.Join(strings.Fields(line), " ")
		name, _, _ := strings.Cut(line, " ")
		switch {
		case line == "" || strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "#include"), line == defaults(path):
		case CheckAccount(name) == nil && line == remote.SudoersLine(name, path):
			if !slices.Contains(accounts, name) {
				accounts = append(accounts, name)
			}
		default:
			return nil, false
		}
	}
	return accounts, true
}
