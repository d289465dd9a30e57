package install

import (
	"bytes"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Login is what a host says without root.
type Login struct {
	UID     string
	User    string
	System  string // such as Linux
	Machine string // such as x86_64
	Version string // of the genv at the path; empty if it is missing or doesn't run
	GPUs    bool   // there is an nvidia-smi
}

// State is what decides whether genv can be installed on a host, as root sees it.
type State struct {
	Found       string // the genv that sudo finds; empty for none
	Sum         string // of the file at the path; empty for none
	Link        string // where the path leads to, if it is a symbolic link
	Other       bool   // the path is neither a file nor a link
	Folders     []Folder
	ReadOnly    string // the folder that can't be written to
	NoExec      string // the mount point that runs no programs
	FreeKiB     int64  // -1 if unknown
	Packages    []Package
	Missing     []string // programs that the installation needs
	Account     bool     // the account for sudoers exists
	Shims       bool     // the shims are in their place
	ShimFolders []Folder // that lead there
	RulesSum    string   // of the file of sudoers; empty if it is missing
	Rules       []string // its lines
	RulesLink   bool     // it is a symbolic link
	RulesFolder *Folder
	Leftovers   []string // of interrupted installations
}

// Folder is a folder on the way to the program.
type Folder struct {
	Path   string
	UID    string
	Mode   string // octal
	Unsafe bool   // somebody other than root may change what is in it
}

// Package owns a file.
type Package struct{ Name, File string }

// said is what a script reported: values by key, in order.
type said map[string][]string

// maxValues bounds what is kept of what a host says.
const (
	maxReported = 4096 // lines
	maxValue    = 4096 // bytes
)

// parseSaid reads the lines that begin with the token of a script, whatever the login
// printed before and between.
func parseSaid(stdout []byte, token string) said {
	found := make(said)
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

// one is the first value of a key, printable.
func (s said) one(key string) string {
	if len(s[key]) == 0 {
		return ""
	}
	return text.OneLine(s[key][0])
}

func (s said) has(key string) bool { return len(s[key]) > 0 }

// complete says whether the script came to its end.
func (s said) complete() bool { return s.has("end") }

func (s said) login() Login {
	return Login{
		UID: s.one("uid"), User: s.one("user"), System: s.one("system"), Machine: s.one("machine"),
		Version: text.Cut(s.one("version"), maxVersion), GPUs: s.has("gpus"),
	}
}

// maxVersion is how long the name of a version may be, in bytes.
const maxVersion = 80

func (s said) state() *State {
	state := &State{
		Found: s.one("found"), Sum: sum(s.one("file")), Link: s.one("link"), Other: s.has("other"),
		ReadOnly: s.one("read-only"), NoExec: s.one("noexec"), FreeKiB: -1, Missing: s["missing"],
		Account: s.has("account"), Shims: s.has("shims"),
		RulesSum: sum(s.one("rules-file")), Rules: s["rule"], RulesLink: s.has("rules-link"), Leftovers: s["leftover"],
	}
	if free, err := strconv.ParseInt(s.one("free"), 10, 64); err == nil {
		state.FreeKiB = free
	}
	for _, line := range s["folder"] {
		state.Folders = append(state.Folders, parseFolder(line))
	}
	for _, line := range s["shims-folder"] {
		state.ShimFolders = append(state.ShimFolders, parseFolder(line))
	}
	for _, line := range s["rules-folder"] {
		f := parseFolder(line + " " + SudoersFolder)
		state.RulesFolder = &f
	}
	for _, line := range s["package"] {
		name, file, _ := strings.Cut(text.OneLine(line), " ")
		state.Packages = append(state.Packages, Package{name, path.Clean(file)})
	}
	return state
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

// sum is a checksum in hexadecimal; something else is "?", so that it is no checksum
// and not empty.
func sum(s string) string {
	if s == "" || len(s) == 64 && strings.Trim(s, "0123456789abcdef") == "" {
		return s
	}
	return "?"
}
