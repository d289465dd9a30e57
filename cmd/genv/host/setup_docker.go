package host

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/shell/docker"
)

const dockerConfig = "/etc/docker/daemon.json"

// daemonConfig is the part of daemon.json about runtimes (dockerd(8)).
type daemonConfig struct {
	Default  string                   `json:"default-runtime,omitempty"`
	Runtimes map[string]daemonRuntime `json:"runtimes,omitempty"`
}

type daemonRuntime struct {
	Path string   `json:"path"`
	Args []string `json:"runtimeArgs,omitempty"`
}

// setupDockerCommand changes nothing: daemon.json is the site's.
func (p *hostCommands) setupDockerCommand() *cli.Command {
	return &cli.Command{
		Name:  "setup-docker",
		Usage: "print what " + dockerConfig + " needs for genv's runtime, which gives containers GPUs and environments",
		Action: func(*cli.Context) error {
			data, err := os.ReadFile(dockerConfig)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			return p.setupDocker(data, self)
		},
	}
}

func (p *hostCommands) setupDocker(daemonJSON []byte, genv string) error {
	var found daemonConfig
	if err := json.Unmarshal(daemonJSON, &found); len(daemonJSON) > 0 && err != nil {
		return fmt.Errorf("%s: %w", dockerConfig, err)
	}
	wanted, err := found.withGenv(genv)
	if err != nil {
		return err
	}
	if found.Default == docker.Runtime && found.Runtimes[docker.Runtime].Path == genv {
		fmt.Fprintf(p.Out, "%s: OK\n", dockerConfig)
		return nil
	}
	text, err := json.MarshalIndent(wanted, "", "    ")
	if err != nil {
		return err
	}
	fmt.Fprintln(p.Out, string(text))
	p.Warn("Add this to " + dockerConfig + ", then: systemctl reload docker (or a SIGHUP for dockerd). " +
		"Containers go on running; those that exist keep the runtime that they have.")
	return nil
}

// withGenv makes genv the default runtime, in front of the present one.
func (d daemonConfig) withGenv(genv string) (daemonConfig, error) {
	name := cmp.Or(d.Default, "runc")
	before := d.Runtimes[name]
	becomes := cmp.Or(before.Path, strings.TrimSuffix(strings.TrimPrefix(name, "io.containerd."), ".v2"))
	switch {
	case name == docker.Runtime && len(before.Args) > 0:
		flags, _ := ownFlags(before.Args[1:])
		becomes = cmp.Or(flags["real"], "runc")
	case len(before.Args) > 0:
		return daemonConfig{}, fmt.Errorf("the runtime %s has arguments, which genv's can't give it", name)
	}
	becomes, err := exec.LookPath(becomes)
	if err == nil {
		err = errors.Join(checkProgram(genv), checkProgram(becomes))
	}
	if err != nil {
		return daemonConfig{}, err
	}
	own := daemonRuntime{genv, []string{RuntimeCommand, "--real=" + becomes, "--"}}
	return daemonConfig{docker.Runtime, map[string]daemonRuntime{docker.Runtime: own}}, nil
}

// checkProgram refuses a program that users other than root and the caller can replace, because dockerd runs it as
// root.
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
			return fmt.Errorf("%s: other users can write %s, and dockerd would run it as root: install it from a package",
				path, at)
		}
	}
	return nil
}
