package install

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// The results: what was done on a host, or would be.
const (
	Unchanged   = "unchanged"
	Installed   = "installed"
	Upgraded    = "upgraded"
	Repaired    = "repaired" // the program was there; sudoers or shims were not
	Uninstalled = "uninstalled"
)

// Who owns the state.
const (
	StateRoot   = "root"   // by its service
	StateShared = "shared" // every user writes it
)

// Plan is what is to be done on a host.
type Plan struct {
	Result  string
	Program *Binary // to upload; nil to leave the one there
	Sudoers string  // the file's new content; empty to leave it
	Earlier string  // the checksum of an earlier version's file, which is removed; empty for none
	Shims   bool    // link the shims
	Key     string  // may log in as the account, which is made if it is missing; empty to leave it
	Clean   bool    // remove files of an interrupted installation
	State   string  // who is to own the state; empty to leave it
	Units   bool    // write root's service, or restart it with another program
	Extras  bool    // add or renew man pages and the like
	Notes   []string
}

// Complete says that the host has everything.
func (p *Plan) Complete() bool { return !p.files() && p.State == "" && !p.Units && !p.Extras }

func (p *Plan) files() bool { return p.Program != nil || p.Sudoers != "" || p.Shims || p.Key != "" }

// Decide compares what a host has with what it is to have. The error, with the next step, is why that can't be done;
// nothing has been changed then.
func Decide(w *Options, program *Binary, s *Survey) (*Plan, error) {
	if err := decidePackage(w.Path, s); err != nil {
		return nil, err
	}
	plan := &Plan{Result: Unchanged, Shims: !s.Shims && hasShims(w.Path), Clean: len(s.Leftovers) > 0}
	if s.Sum != program.Sum {
		plan.Program = program
	}
	// Others than root could turn root's write elsewhere.
	if f := unsafe(s.ShimFolders); f != nil && hasShims(w.Path) {
		plan.Shims = false
		plan.note("the shims are not linked: %s", f.why())
	}
	for _, tool := range s.Missing { // the scripts call them; visudo only for sudoers
		if tool != "visudo" {
			return nil, refuse("install "+tool+" on the host (the package coreutils has it)",
				"there is no %s on the host", tool)
		}
	}
	if err := plan.decidePlace(w, s); err != nil {
		return nil, err
	}
	if err := plan.decideSudoers(w, s); err != nil {
		return nil, err
	}
	plan.decideAccount(w, s)
	plan.Extras = w.Extras && (plan.Program != nil || len(s.Lacks) > 0)
	for _, what := range s.Lacks {
		plan.note("also: %s", text.OneLine(what))
	}
	if err := plan.decideState(w, s); err != nil {
		return nil, err
	}
	switch {
	case plan.Program != nil && s.Sum == "":
		plan.Result = Installed
	case plan.Program != nil:
		plan.Result = Upgraded
	case !plan.Complete():
		plan.Result = Repaired
	}
	if s.Found != w.Path && s.Found != "" {
		plan.note("sudo finds another genv first: %s", s.Found)
	}
	return plan, nil
}

// decideAccount lets a controller's key log in as an account, which is made if it is missing.
func (p *Plan) decideAccount(w *Options, s *Survey) {
	if w.Key != "" && len(s.SSHRefuses) > 0 {
		lists := make(map[string][]string)
		var steps []string
		for _, list := range s.SSHRefuses {
			verb := "add it to "
			if strings.HasPrefix(list, "Deny") {
				verb = "remove it from "
			}
			lists[verb] = append(lists[verb], list)
		}
		for _, verb := range slices.Sorted(maps.Keys(lists)) {
			steps = append(steps, verb+strings.Join(lists[verb], " and "))
		}
		p.note("sshd refuses logins of %s: %s in sshd_config there", w.Account,
			text.OneLine(strings.Join(steps, " and ")))
	}
	if w.Key == "" || s.HasKey {
		return
	}
	p.Key = w.Key
	if s.AccountUID == "" {
		p.note("the account %s is made", w.Account)
	}
	if len(s.SSHRefuses) == 0 {
		p.note("the controller's key may log in as %s", w.Account)
	}
}

// decideState lets root own the state of a new host. An upgrade never changes the owner.
func (p *Plan) decideState(w *Options, s *Survey) error {
	has := len(s.Units) > 0
	switch {
	case w.State == StateRoot && !s.Systemd:
		return refuse("use --state shared there", "root's service needs systemd, which the host doesn't run")
	case w.State == StateRoot && !(has && s.Owned), w.State == "" && s.Sum == "" && s.NotNew == "" && s.Systemd && !has:
		p.State, p.Units = StateRoot, true
		p.note("root owns the state by its service: `genv host status` there")
	case w.State == StateShared && (has || s.Owned):
		p.State = StateShared
		p.note("every user writes the state, and can change and remove what others have registered")
	case w.State == "" && s.Sum == "" && !s.Owned && s.NotNew != "":
		advice := ""
		if s.Systemd {
			advice = "; `--state root` lets root own it"
		}
		p.note("every user writes the state: %s%s", s.NotNew, advice)
	}
	if has && p.State == "" { // they run the installed program
		units := []string{sumOf(hostSocket), sumOf(unitFor(hostService, w.Path))}
		p.Units = p.Program != nil || !slices.Equal(s.Units, units)
	}
	return nil
}

func (p *Plan) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

// refuse is the error of a host that was not changed.
func refuse(next, format string, args ...any) error {
	return remote.Errorf(remote.InstallRefused, format, args...).WithNext(next)
}

// decidePackage leaves packages' files to the package manager.
func decidePackage(path string, s *Survey) error {
	for _, file := range []string{path, s.Found} {
		if name := s.Packages[file]; name != "" {
			return refuse("upgrade the package "+name+" on the host instead, or remove it first",
				"%s belongs to the package %s", file, name)
		}
	}
	return nil
}

func (p *Plan) decidePlace(w *Options, s *Survey) error {
	switch {
	case s.Other:
		return refuse("remove it, or use another --path", "%s is there and is not a file", w.Path)
	case s.Link != "":
		return refuse("use --path with the file itself, or remove the link", "%s is a symbolic link to %s", w.Path,
			s.Link)
	case s.Sum != "" && p.Program != nil && !w.Upgrade:
		return refuse("replace it with --upgrade", "%s is another genv: %s", w.Path, describe(s.Version, s.Sum))
	}
	return decideFolders(w.Path, s)
}

func describe(version, sum string) string {
	sum = "sha256 " + text.Cut(sum, 12)
	if version == "" {
		return sum + ", which doesn't say its version"
	}
	return "version " + version + ", " + sum
}

// decideFolders needs every folder up to the root to be root's alone: who can rename one decides what sudo runs.
func decideFolders(path string, s *Survey) error {
	if len(s.Folders) == 0 {
		return remote.Errorf(remote.InvalidOutput, "the host doesn't say which folders lead to %s", path)
	}
	if f := unsafe(s.Folders); f != nil {
		return refuse(fmt.Sprintf("give it to root alone (chown root %[1]s; chmod go-w %[1]s), or use another --path",
			f.Path), "%s", f.why())
	}
	return nil
}

// decideSudoers keeps the accounts that the file allows already, also the file of earlier versions, which it replaces.
// It refuses to write over lines that genv didn't write.
func (p *Plan) decideSudoers(w *Options, s *Survey) error {
	if w.Account == "" {
		return nil
	}
	accounts, known := rulesOf(s.Rules, w.Path)
	earlier, ours := rulesOf(s.OldRules, w.Path)
	if s.OldSum != "" && ours && !s.OldLink {
		p.Earlier = s.OldSum
	} else if s.OldSum != "" {
		p.note("%s/%s has lines that genv did not write, and is left as it is", SudoersFolder, oldRulesFile)
	}
	for _, account := range append(earlier, remote.SudoersAccount(w.Account, s.AccountUID)) {
		if !slices.Contains(accounts, account) {
			accounts = append(accounts, account)
		}
	}
	content := Sudoers(w.Path, s.SudoPath, accounts...)
	file := SudoersFolder + "/" + remote.SudoersFile
	switch {
	case p.Earlier == "" && strings.TrimRight(strings.Join(s.Rules, "\n"), "\n")+"\n" == content && !s.RulesLink:
		return nil
	case s.AccountUID == "" && (w.Key == "" || slices.Contains(accounts, "USER")):
		return refuse("create it there, or name another one with --sudoers-for", "the host has no account %s",
			text.Quoted(w.Account, 80))
	case slices.Contains(s.Missing, "visudo"):
		return refuse("install sudo on the host", "there is no visudo on the host to check %s with", file)
	case s.RulesFolder == nil:
		return refuse("create it for root alone, with a line `@includedir /etc/sudoers.d` in /etc/sudoers",
			"there is no %s on the host", SudoersFolder)
	case s.RulesFolder.Unsafe:
		return refuse("give it to root alone: chmod go-w "+SudoersFolder, "%s", s.RulesFolder.why())
	case s.RulesLink:
		return refuse("replace the link with a file, or remove it", "%s is a symbolic link", file)
	case !known:
		p.note("%s has lines that genv did not write, and is left as it is", file)
		p.Earlier = ""
		return nil
	}
	p.Sudoers = content
	return nil
}

// SudoersFolder has genv's file remote.SudoersFile, and had oldRulesFile (sudoers(5)).
const (
	SudoersFolder = "/etc/sudoers.d"
	oldRulesFile  = "genv"
)

// securePath is where root's genv looks for programs, such as nvidia-smi, before the site's folders.
const securePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Sudoers is the file that lets these accounts, as remote.SudoersAccount writes them, run as root and without a
// password what a controller runs of the genv at path, and nothing else. The site's own secure_path stays in it.
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

// CheckPath refuses paths of the program that don't fit into sudoers or a shell, or that sudo wouldn't find as genv.
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

// rulesOf reads the accounts from a file as Sudoers writes it or the documentation has it; false if it has anything
// else.
func rulesOf(lines []string, path string) (accounts []string, ok bool) {
	joined := strings.ReplaceAll(strings.Join(lines, "\n"), "\\\n", " ")
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
	return accounts, true
}

func isDefaults(line, path string) bool {
	quoted, ours := strings.CutPrefix(line, "Defaults!"+path+` secure_path="`)
	return ours && strings.HasSuffix(quoted, `"`) && plainPath().MatchString(strings.TrimSuffix(quoted, `"`))
}
