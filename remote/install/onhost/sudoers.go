package onhost

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// SudoersFolder has genv's file, remote.SudoersFile, formerly oldRulesFile (sudoers(5)).
const (
	SudoersFolder = "/etc/sudoers.d"
	oldRulesFile  = "genv"
)

// securePath is root's genv's, for programs such as nvidia-smi, before the site's folders.
const securePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Sudoers lets accounts (see remote.SudoersAccount) run as root, without a password, only what a controller runs of the
// genv at path. It keeps the site's own secure_path.
func Sudoers(path, sitePath string, accounts ...string) string {
	var b strings.Builder
	b.WriteString("# Written by `genv remote install`. It allows what a controller of genv runs on a host.\n")
	b.WriteString(defaults(path, sitePath) + "\n")
	for _, account := range accounts {
		b.WriteString(strings.ReplaceAll(remote.SudoersLine(account, path), ", ", ", \\\n\t") + "\n")
	}
	return b.String()
}

func defaults(path, sitePath string) string {
	folders := strings.Split(securePath, ":")
	for folder := range strings.SplitSeq(sitePath, ":") {
		if plainFolder().MatchString(folder) && !slices.Contains(folders, folder) {
			folders = append(folders, folder)
		}
	}
	return fmt.Sprintf("Defaults!%s secure_path=%q", path, strings.Join(folders, ":"))
}

var (
	plainFolder = text.Pattern(`^(/[A-Za-z0-9_+-][A-Za-z0-9_.+-]*){1,20}$`)
	plainPath   = text.Pattern(`^[A-Za-z0-9_.+/:-]{1,1000}$`)
)

// CheckPath refuses paths that don't fit into sudoers or a shell, or that sudo wouldn't find as genv.
func CheckPath(path string) error {
	switch {
	case len(path) > 200 || !plainFolder().MatchString(path):
		return fmt.Errorf("%q: write an absolute path of letters, digits and . _ + -, such as %s", path,
			remote.DefaultGenv)
	case !strings.HasSuffix(path, "/genv"):
		return fmt.Errorf("%q: the program must be named genv, as in %s", path, remote.DefaultGenv)
	}
	return nil
}

func oldLine(account, path string) string {
	return fmt.Sprintf("%s ALL=(root) NOPASSWD: %[2]s usage snapshot, %[2]s usage snapshot *, %[2]s usage execute, "+
		"%[2]s usage serve *", account, path)
}

// accounts reads a file of Sudoers or from the documentation. ours is false if it has anything else, or is a link.
func (r *Rules) accounts(path string) (accounts []string, ours bool) {
	joined := strings.ReplaceAll(r.Content, "\\\n", " ")
	for line := range strings.SplitSeq(joined, "\n") {
		line = strings.Join(strings.Fields(line), " ")
		name, _, _ := strings.Cut(line, " ")
		isAccount := name != "" && (remote.SudoersAccount(name, "") == name && name != "USER" ||
			remote.SudoersAccount("", strings.TrimPrefix(name, "#")) == name)
		switch {
		case isAccount && (line == remote.SudoersLine(name, path) || line == oldLine(name, path)):
			if !slices.Contains(accounts, name) {
				accounts = append(accounts, name)
			}
		case line == "" || strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "#include") && !isAccount,
			isDefaults(line, path):
		default:
			return nil, false
		}
	}
	return accounts, !r.Link
}

func isDefaults(line, path string) bool {
	quoted, ours := strings.CutPrefix(line, "Defaults!"+path+` secure_path="`)
	return ours && strings.HasSuffix(quoted, `"`) && plainPath().MatchString(strings.TrimSuffix(quoted, `"`))
}
