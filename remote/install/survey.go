package install

import (
	"bytes"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Survey is what root sees on a host, from which Decide decides.
type Survey struct {
	Found       string // the genv that sudo finds; empty for none
	Sum         string // of the file at the path; empty for none
	Version     string // what it says to the login; empty if it is missing or doesn't run
	Link        string // the target, if the path is a symbolic link
	Other       bool   // the path is neither a file nor a link
	Folders     []Folder
	Packages    map[string]string // the names of packages by a file that they own
	Missing     []string          // programs that the installation needs
	AccountUID  string            // of the account for sudoers; empty if it doesn't exist
	HasKey      bool              // the account has the controller's key
	SSHRefuses  []string          // lists of sshd_config that keep the account out, such as AllowUsers
	SudoPath    string            // where sudo looks for programs
	Shims       bool              // the shims are in their place
	ShimFolders []Folder          // that lead there
	RulesSum    string            // of the file of sudoers; empty if it is missing
	Rules       []string          // its lines
	RulesLink   bool              // it is a symbolic link
	RulesFolder *Folder
	// OldSum, OldRules and OldLink are those of an earlier version's file.
	OldSum    string
	OldRules  []string
	OldLink   bool
	Leftovers []string // of interrupted installations
	Lacks     []string // of the extras, in words

	NotNew  string   // why root doesn't own the state by default
	Owned   bool     // root owns the state
	Systemd bool     // it runs
	Units   []string // the checksums of root's units
}

// Folder leads to the program.
type Folder struct {
	Path   string
	UID    string
	Mode   string // octal
	Unsafe bool   // users other than root may change what is in it
}

// values are a script's reports, in order, by key.
type values map[string][]string

// Bounds of a host's reports.
const (
	maxReported = 4096 // lines
	maxValue    = 4096 // bytes
)

// parseValues reads the lines that begin with a script's token, whatever the login prints.
func parseValues(stdout []byte, token string) values {
	found := make(values)
	count := 0
	for line := range bytes.SplitSeq(stdout, []byte("\n")) {
		rest, ok := bytes.CutPrefix(line, []byte(token+" "))
		if !ok || count == maxReported {
			continue
		}
		count++
		key, value, _ := strings.Cut(text.Cut(string(rest), maxValue), " ")
		found[key] = append(found[key], value)
	}
	return found
}

func (v values) one(key string) string {
	if len(v[key]) == 0 {
		return ""
	}
	return text.OneLine(v[key][0])
}

func (v values) has(key string) bool { return len(v[key]) > 0 }

func (v values) survey(version string) *Survey {
	s := &Survey{
		Packages: map[string]string{},
		Found:    v.one("found"), Sum: sum(v.one("file")), Version: version, Link: v.one("link"), Other: v.has("other"),
		Missing: v["missing"], AccountUID: v.one("account"), HasKey: v.has("key"), SSHRefuses: v["ssh-refuses"],
		SudoPath: v.one("sudo-path"), Shims: v.has("shims"),
		RulesSum: sum(v.one("rule-file")), Rules: v["rule"], RulesLink: v.has("rule-link"),
		OldSum: sum(v.one("old-rule-file")), OldRules: v["old-rule"], OldLink: v.has("old-rule-link"),
		Leftovers: v["leftover"], Lacks: v["lacks"],
		NotNew: v.one("not-new"), Owned: v.has("owned"), Systemd: v.has("systemd"), Units: v["unit"],
	}
	for _, line := range v["folder"] {
		s.Folders = append(s.Folders, parseFolder(line))
	}
	for _, line := range v["shims-folder"] {
		s.ShimFolders = append(s.ShimFolders, parseFolder(line))
	}
	for _, line := range v["rules-folder"] {
		f := parseFolder(line + " " + SudoersFolder)
		s.RulesFolder = &f
	}
	for _, line := range v["package"] {
		name, file, _ := strings.Cut(text.OneLine(line), " ")
		s.Packages[path.Clean(file)] = name
	}
	return s
}

func parseFolder(line string) Folder {
	fields := append(strings.SplitN(text.OneLine(line), " ", 3), "", "")
	f := Folder{UID: fields[0], Mode: fields[1], Path: fields[2]}
	mode, err := strconv.ParseUint(f.Mode, 8, 32)
	f.Unsafe = err != nil || f.UID != "0" || mode&0o022 != 0
	return f
}

func (f *Folder) why() string {
	return fmt.Sprintf("others than root may change what is in %s (uid %s, mode %s)", f.Path, f.UID, f.Mode)
}

func unsafe(folders []Folder) *Folder {
	for i := range folders {
		if folders[i].Unsafe {
			return &folders[i]
		}
	}
	return nil
}

// sum is a checksum in hexadecimal, or "?" for anything else that isn't empty.
func sum(s string) string {
	if s == "" || len(s) == 64 && strings.Trim(s, "0123456789abcdef") == "" {
		return s
	}
	return "?"
}
