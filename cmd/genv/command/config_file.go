package command

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// The configuration files of a controller; docs/fleet.md describes them. Only `genv remote …`, `genv enforce` and `genv
// policy …` read them. They decide what root does, so a file that others could have written is refused.
const (
	ConfigVariable = "GENV_CONFIG_DIR"
	ConfigOff      = "off" // as the value of ConfigVariable: no file is read

	HostsFile  = "hosts.yaml"  // the inventory
	PolicyFile = "policy.yaml" // the default policy
	ConfigFile = "config.yaml" // defaults for flags

	systemFolder = "/etc/genv"
	systemConfig = systemFolder + "/" + ConfigFile
)

// ConfigPaths are the paths of a file in order; the first one that exists counts.
func ConfigPaths(getenv func(string) string, name string) []string {
	var paths []string
	folders, _ := configFolders(getenv)
	for _, folder := range folders {
		paths = append(paths, filepath.Join(folder, name))
	}
	return paths
}

// FindConfig is the path of a file; empty if it doesn't exist.
func FindConfig(getenv func(string) string, name string) (string, error) {
	for _, path := range ConfigPaths(getenv, name) {
		file, err := OpenConfig(path)
		if err == nil {
			return path, file.Close()
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", UsageError("%w", err)
		}
	}
	return "", nil
}

// configFolders leaves out a folder of another user, with the reason. With `sudo -E` and `sudo -u`, HOME may be another
// user's, who must not decide what this user's genv does.
func configFolders(getenv func(string) string) (folders []string, leftOut error) {
	switch dir := getenv(ConfigVariable); dir {
	case "":
	case ConfigOff:
		return nil, nil
	default:
		return []string{dir}, nil
	}
	own, home := "", ""
	if dir := getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		own, home = filepath.Join(dir, "genv"), filepath.Clean(dir)
	} else if dir := getenv("HOME"); filepath.IsAbs(dir) {
		own, home = filepath.Join(dir, ".config", "genv"), filepath.Clean(dir)
	}
	if own == "" || own == systemFolder {
		return []string{systemFolder}, nil
	}
	if leftOut = notOurs(own, home); leftOut == nil { // even if it is missing: messages name it
		folders = []string{own}
	}
	return append(folders, systemFolder), leftOut
}

// notOurs is why a folder below home isn't read: another user could have put it, or a link to it, there.
func notOurs(own, home string) error {
	var about unix.Stat_t
	for path := own; ; path = filepath.Dir(path) {
		switch err := unix.Stat(path, &about); {
		case errors.Is(err, fs.ErrPermission):
			return fmt.Errorf("%s isn't read: %w", own, err)
		case err != nil:
			return nil //nolint:nilerr // nothing to read
		case !trusted(about.Uid):
			return fmt.Errorf("%s isn't read: %s belongs to uid %d, and this program runs as uid %d; "+
				"name its files with -H and --policy", own, path, about.Uid, os.Geteuid())
		}
		if path == home || path == "/" {
			return nil
		}
	}
}

// OpenConfig opens a file, unless users other than root and this one could have written it.
func OpenConfig(path string) (io.ReadCloser, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	file := os.NewFile(uintptr(fd), path)
	var about unix.Stat_t
	if err = unix.Fstat(fd, &about); err == nil {
		err = check(path, &about)
	}
	target := path
	if err == nil {
		target, err = filepath.EvalSymlinks(path)
	}
	for _, folder := range slices.Compact([]string{filepath.Dir(path), filepath.Dir(target)}) {
		if err == nil {
			err = unix.Stat(folder, &about)
		}
		if err == nil {
			err = check(folder, &about)
		}
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// check refuses what users other than root and this one may change. A writable file of root's group is fine, and one of
// the user's own group, which has the user's number.
func check(path string, about *unix.Stat_t) error {
	switch {
	case !trusted(about.Uid):
		return fmt.Errorf("%s belongs to uid %d, who could change what genv does: run `chown root %s`, or set %s=off",
			path, about.Uid, path, ConfigVariable)
	case about.Mode&unix.S_IWOTH != 0:
		return fmt.Errorf("%s may be changed by every user: run `chmod o-w %s`", path, path)
	case about.Mode&unix.S_IWGRP != 0 && about.Gid != 0 && int(about.Gid) != os.Geteuid():
		return fmt.Errorf("%s may be changed by the group %d: run `chmod g-w %s`", path, about.Gid, path)
	case about.Mode&unix.S_IFMT != unix.S_IFREG && about.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("%s is not a regular file", path)
	}
	return nil
}

func trusted(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

type configValue struct {
	Flag  string
	Words []string
	Place strictyaml.Place
}

// configFile is by section; "" is the top of the file.
type configFile map[string][]configValue

// parseConfig reads a config.yaml for commands below `genv remote`. Its error is a *strictyaml.ParseError on one line.
func parseConfig(name string, data []byte, commands []*cli.Command) (configFile, error) {
	file := configFile{}
	if isEmpty(data) {
		return file, nil
	}
	doc := strictyaml.Parse(name, data)
	known := configKeysOf(commands)
	doc.Root().Each(func(key, value *strictyaml.Node) {
		section := key.Text()
		if known[section] == nil || section == "" {
			file.read(known, topSection, key, value)
			return
		}
		value.Each(func(key, value *strictyaml.Node) { file.read(known, section, key, value) })
	})
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return file, nil
}

// CheckConfig returns the first problem of a config.yaml for the flags of some commands.
func CheckConfig(name string, data []byte, commands []*cli.Command) error {
	_, err := parseConfig(name, data, commands)
	return err
}

func isEmpty(data []byte) bool {
	for line := range bytes.Lines(data) {
		if line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("\uFEFF"))); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

func (f configFile) read(known configKeys, section string, key, value *strictyaml.Node) {
	name := key.Text()
	flag, ok := known[section][name]
	switch {
	case name == "", name == accountKey && section == topSection && key.Place().File == systemConfig:
	case name == accountKey:
		key.Failf("%s is read at the top of %s alone", name, systemConfig)
	case ok:
		f[section] = append(f[section], configValue{flag.names[0], wordsOf(flag, value), key.Place()})
	case known.refusal(name) != "":
		key.Failf("%s can't be set here: %s", name, known.refusal(name))
	case len(known.sections(name)) > 0:
		sections := text.Shorten("`"+strings.Join(known.sections(name), ":`, `")+":`", 200)
		of := map[string]string{topSection: "all commands", remoteSection: "all commands of genv remote"}[section]
		key.Failf("%s is not a flag of %s; write it under %s", name, cmp.Or(of, "genv remote "+section), sections)
	default:
		names := sorted(known[section])
		if section == topSection {
			names = append(names, known.sections("")...)
		}
		key.Failf("unknown key %q; %s", name, text.Hint(name, names, "`genv remote --help` lists the flags"))
	}
}

// valuesFor are the values for the flags of a command. The first file and the command's own section take precedence.
// Keys under `enforce:` come last; they are for commands that show or change a controller.
func valuesFor(cmd *cli.Command, files []configFile) map[string]configValue {
	values := map[string]configValue{}
	for _, file := range slices.Backward(files) {
		file.addTo(values, cmd, "enforce", shared)
	}
	for _, file := range slices.Backward(files) {
		file.addTo(values, cmd, topSection, top)
		file.addTo(values, cmd, remoteSection, underRemote)
		file.addTo(values, cmd, cmd.Name, Site)
	}
	return values
}

func (f configFile) addTo(values map[string]configValue, cmd *cli.Command, section string, from InConfig) {
	list := slices.DeleteFunc(slices.Clone(f[section]), func(v configValue) bool {
		flag := FlagOf(cmd, v.Flag)
		return flag == nil || flag.keys&from == 0
	})
	if slices.ContainsFunc(list, namesHosts) {
		delete(values, "host") // only one place names the hosts
		delete(values, "hostfile")
	}
	for _, v := range list {
		values[v.Flag] = v
	}
}

func namesHosts(v configValue) bool { return v.Flag == "host" || v.Flag == "hostfile" }
