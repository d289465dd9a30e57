package onhost

import (
	"cmp"
	"context"
	_ "embed" // the units
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// Units of root's service, as in the packages, and of a machine alone.
var (
	//go:embed systemd/genv-host.socket
	hostSocket string
	//go:embed systemd/genv-host.service
	hostService string
	//go:embed systemd/genv-enforce.service
	enforceService string
)

type part struct {
	path    string
	link    string   // target of a link
	content string   // of a file
	args    []string // make the program print the content, or write the man pages
	line    string   // in another's file
	what    string   // description of an extra
	lacks   bool     // the extra is to be added
}

const (
	unitFolder  = "/etc/systemd/system/"
	usual       = "/usr/bin/genv" // found by cron
	enforceUnit = "genv-enforce.service"
	shimTarget  = "../../../bin/genv" // shims link to the program if its folder is named bin
	// Not the package's file name, which this would override. systemd-tmpfiles removes old files from /var/tmp.
	tmpfiles = "/etc/tmpfiles.d/genv-state.conf"
	mark     = "# by genv remote install --shell-setup"
)

func hasShims(program string) bool { return path.Base(path.Dir(program)) == "bin" }

// shims are where `make install` puts them.
func (i *installation) shims() (parts []part) {
	for _, shim := range []string{"docker", "nvidia-smi"} {
		parts = append(parts, part{path: path.Join(i.Path, "../../lib/genv/shims", shim), link: shimTarget})
	}
	return parts
}

// extras are for Extras and ShellSetup. again renews those made by the program.
func (i *installation) extras(ctx context.Context, again bool) (parts []part) {
	if !i.Extras {
		return nil
	}
	share := path.Join(i.Path, "../../share")
	for file, args := range map[string][]string{
		"man/man1/genv.1":                     {"man", i.at(path.Join(share, "man/man1"))},
		"bash-completion/completions/genv":    {"completion", "bash"},
		"zsh/site-functions/_genv":            {"completion", "zsh"},
		"fish/vendor_completions.d/genv.fish": {"completion", "fish"},
	} {
		file = path.Join(share, file)
		if hasShims(i.Path) && i.unsafe(path.Dir(file)) == nil { // only root changes these folders
			what := "man pages and completion below " + share
			parts = append(parts, part{path: file, args: args, what: what, lacks: again || !i.exists(file)})
		}
	}
	systemd, unit := i.isFolder("/run/systemd/system"), unitFolder+enforceUnit
	sum := fileSum(i.at(unit))
	_, restart := i.outdated(ctx, enforceUnit)
	parts = append(parts, part{
		path: unit, content: strings.ReplaceAll(enforceService, usual, i.Path),
		what:  enforceUnit + ", for a machine alone; it is not enabled",
		lacks: systemd && sum != "?" && (again || sum == "" || restart), // "?": masked
	}, part{
		path: tmpfiles, content: "x /var/tmp/genv\n", what: tmpfiles + ", so that the state is kept",
		lacks: systemd && i.isFolder(path.Dir(tmpfiles)) && !i.exists(tmpfiles) && !i.exists("/usr/lib/tmpfiles.d/genv.conf"),
	}, part{
		path: usual, link: i.Path, what: "a link at " + usual,
		lacks: i.Path != usual && !i.exists(usual) && unix.Access(i.at(path.Dir(usual)), unix.W_OK) == nil,
	})
	for _, file := range []string{"/etc/bash.bashrc", "/etc/bashrc", "/etc/zsh/zshrc", "/etc/zshrc"} {
		if data, err := os.ReadFile(i.at(file)); err == nil {
			parts = append(parts, part{
				path: file, line: i.shellLine(file), what: "genv in the shells of all users, by " + file,
				lacks: i.ShellSetup && !strings.Contains(string(data), mark),
			})
		}
	}
	return parts
}

// shellLine starts genv only in interactive shells, which don't wait for it or fail with it.
func (i *installation) shellLine(file string) string {
	kind := "bash"
	if strings.HasSuffix(file, "zshrc") {
		kind = "zsh"
	}
	return "case $- in *i*) [ ! -x " + i.Path + " ] || eval \"$(timeout -k 1 5 " + i.Path + " shell --init --shell " +
		kind + " 2>/dev/null)\" || : ;; esac " + mark + "\n"
}

func (h *Host) exists(path string) bool {
	_, err := os.Lstat(h.at(path))
	return err == nil
}

// addExtras needs the program in place.
func (i *installation) addExtras(ctx context.Context, again bool) (err error) {
	for _, p := range i.extras(ctx, again) {
		isUnit := path.Base(p.path) == enforceUnit
		sum := fileSum(i.at(p.path)) // rewriting a unit makes systemd reload it; a unit changed by its site stays
		if p.lacks && err == nil && (!isUnit || again && sum != Checksum(p.content) || sum == "") {
			err = i.put(ctx, p)
		}
		if p.lacks && err == nil && isUnit {
			err = i.restart(ctx, "try-restart", enforceUnit)
		}
	}
	return i.failure("extras", err)
}

func (i *installation) put(ctx context.Context, p part) error {
	file := i.at(p.path)
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil && len(p.args) > 0 {
		p.content, err = i.run(ctx, i.at(i.Path), p.args...)
	}
	switch {
	case err != nil:
		return err
	case p.line != "":
		return appendLine(file, p.line)
	case len(p.args) > 0 && p.args[0] == "man":
		return nil
	case p.link != "":
		_ = os.Remove(staged(file)) // from an interrupted run
		err = os.Symlink(p.link, staged(file))
	default:
		err = folder.WriteFile(staged(file), []byte(p.content), 0o644)
	}
	if err == nil {
		err = os.Rename(staged(file), file)
	}
	return err
}

// appendLine appends a line to a file that may lack the final newline.
func appendLine(file, line string) error {
	to, err := os.OpenFile(file, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	last := []byte{'\n'}
	if end, err := to.Seek(0, io.SeekEnd); err == nil && end > 0 {
		_, _ = to.ReadAt(last, end-1)
	}
	if last[0] != '\n' {
		line = "\n" + line
	}
	_, err = to.WriteString(line)
	return errors.Join(err, to.Close())
}

// take removes a part if it is ours, and folders that become empty.
func (i *installation) take(ctx context.Context, p part) error {
	file := i.at(p.path)
	link, _ := os.Readlink(file)
	data, _ := os.ReadFile(file)
	isUnit := strings.HasPrefix(p.path, unitFolder)
	switch {
	case p.line != "":
		return removeLine(file, string(data))
	case link != p.link || !i.exists(p.path) || p.path == tmpfiles && string(data) != p.content:
		return nil
	case isUnit:
		_ = i.systemctl(ctx, "--no-reload disable --now", path.Base(file)) // removed anyway
	}
	files := []string{file}
	if len(p.args) > 0 && p.args[0] == "man" {
		more, _ := filepath.Glob(strings.TrimSuffix(file, ".1") + "-*.1") // a valid pattern
		files = append(files, more...)
	}
	for _, file := range files {
		if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	if dir := filepath.Dir(file); len(p.args) > 0 || p.link == shimTarget {
		if _ = unix.Rmdir(dir); filepath.Base(dir) != "man1" { // not a link to one
			_ = unix.Rmdir(filepath.Dir(dir))
		}
	}
	return nil
}

// takeAll removes parts, with one reload of systemd: each can cost containers their GPUs.
func (i *installation) takeAll(ctx context.Context, parts []part) error {
	isUnit := func(p part) bool { return strings.HasPrefix(p.path, unitFolder) && i.exists(p.path) }
	units := slices.ContainsFunc(parts, isUnit)
	for _, p := range parts {
		if err := i.take(ctx, p); err != nil {
			return err
		}
	}
	if units {
		_ = i.systemctl(ctx, "daemon-reload") // removed anyway
	}
	return nil
}

// removeLine removes lines with our mark, also behind a link.
func removeLine(file, content string) error {
	if !strings.Contains(content, mark) {
		return nil
	}
	lines := slices.DeleteFunc(strings.SplitAfter(content, "\n"), func(line string) bool {
		return strings.HasSuffix(strings.TrimSuffix(line, "\n"), mark)
	})
	file, err := filepath.EvalSymlinks(file)
	info, statErr := os.Stat(file)
	if err = cmp.Or(err, statErr); err != nil {
		return err
	}
	return folder.WriteFile(file, []byte(strings.Join(lines, "")), uint32(info.Mode().Perm()))
}
