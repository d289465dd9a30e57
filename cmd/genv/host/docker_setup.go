package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// maxDaemonJSON bounds a daemon.json, in bytes.
const maxDaemonJSON = 1 << 20

// setupDockerCommand is `genv host setup-docker`.
func (p *program) setupDockerCommand() *cli.Command {
	return &cli.Command{
		Name:  "setup-docker",
		Usage: "have dockerd start containers with genv's runtime, which gives them GPUs and an environment",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "remove", Usage: "undo it: the default runtime is the one before"},
			&cli.BoolFlag{Name: "no-default", Usage: "leave the default runtime: only containers with --runtime genv have genv's"},
			&cli.StringFlag{Name: "real", Usage: "the `PROGRAM` that genv's runtime becomes, instead of the present default runtime"},
			&cli.StringFlag{Name: "config", Value: "/etc/docker/daemon.json", Usage: "the configuration `FILE` of dockerd"},
		},
		Action: p.setupDocker,
	}
}

func (p *program) setupDocker(c *cli.Context) error {
	path := c.String("config")
	old, err := readDaemonJSON(path)
	if err != nil {
		return err
	}
	var next []byte
	if c.Bool("remove") {
		next, err = unmerge(old)
	} else {
		next, err = mergedDaemon(c, old)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if same(old, next) {
		fmt.Fprintf(p.Out, "%s is as it should be.\n", path)
		return nil
	}
	if err := writeDaemonJSON(path, next); err != nil {
		return err
	}
	fmt.Fprintf(p.Out, "%s has been changed.\nNext: systemctl reload docker (or a SIGHUP for dockerd). "+
		"Containers go on running; those that exist keep the runtime that they have.\n", path)
	return nil
}

func mergedDaemon(c *cli.Context, old []byte) ([]byte, error) {
	self, err := os.Executable()
	if err == nil {
		err = checkProgram(self)
	}
	if err != nil {
		return nil, err
	}
	d := daemonSetup{genv: self, isDefault: !c.Bool("no-default"), lookup: func(name string) (string, error) {
		path, err := exec.LookPath(name)
		if err != nil {
			return "", err
		}
		return path, checkProgram(path)
	}}
	if given := c.String("real"); given != "" {
		if d.real, err = d.lookup(given); err != nil {
			return nil, err
		}
	}
	return d.merge(old)
}

// checkProgram refuses a program that another user than root, or the caller, can replace:
// dockerd runs it as root.
func checkProgram(path string) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%s is not an absolute path", path)
	}
	for at := path; at != "/"; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		sticky := info.IsDir() && info.Mode()&os.ModeSticky != 0
		if !ok || stat.Uid != 0 && int(stat.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 && !sticky {
			return fmt.Errorf("%s: other users can write %s, and dockerd would run it as root: install genv with its package", path, at)
		}
	}
	return nil
}

// readDaemonJSON returns nothing for a file that doesn't exist.
func readDaemonJSON(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxDaemonJSON:
		return nil, fmt.Errorf("%s: %w: it is not a file of dockerd", path, errDaemonJSON)
	}
	return os.ReadFile(path)
}

// writeDaemonJSON replaces the file, or the one to which a link leads, as a whole.
func writeDaemonJSON(path string, data []byte) error {
	mode := uint32(0o644)
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
		if info, err := os.Stat(target); err == nil {
			mode = uint32(info.Mode().Perm())
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	dir, err := folder.OpenExisting(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Put(filepath.Base(path), data, mode, true)
}

// same compares files as JSON objects; an empty object is as good as none.
func same(old, next []byte) bool {
	text := func(data []byte) string {
		file, _, err := readDaemon(data)
		if err != nil {
			return ""
		}
		out, _ := file.text() // what was read can be written
		return string(out)
	}
	return text(old) == text(next)
}
