package user

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/text"
)

type configOptions struct {
	clear, save, load, quiet bool
	count, gpuMemory, name   string

	which []environment.Configurable // the settings of the command
	value bool                       // a value is given
	set   snapshot.EnvConfig         // the given or saved values
}

func (p *userCommands) configCommand() *cli.Command {
	o := new(configOptions)
	return &cli.Command{
		Name: "config", Usage: "show or change the configuration of this environment",
		ArgsUsage: "[gpus|gpu-memory|name] [VALUE]",
		Flags: []cli.Flag{
			o.clearFlag(),
			command.Bool(&o.save, "save", "save the configuration in the folder that genv home prints"),
			command.Bool(&o.load, "load", "load the configuration from there"),
			command.Bool(&o.quiet, "quiet,q,refresh",
				"print nothing; update this shell after another terminal changed the configuration"),
		},
		Action: func(c *cli.Context) error { return p.config(c, o) },
	}
}

func (o *configOptions) clearFlag() cli.Flag {
	return command.Bool(&o.clear, "clear", "remove the setting, or all")
}

// valueFlags are for programs: each sets one setting of `genv envs config`.
func (o *configOptions) valueFlags() []cli.Flag {
	return []cli.Flag{
		command.String(&o.count, "count", "the number `N` of gpus; the same as gpus N"),
		command.String(&o.gpuMemory, "gpu-memory", "the `CAPACITY` of gpu-memory; the same as gpu-memory CAPACITY"),
		command.String(&o.name, "name", "the `NAME`; the same as name NAME"),
	}
}

func (o *configOptions) request(c *cli.Context) error {
	o.which = environment.Settings
	words := c.Args().Slice()
	for _, given := range []struct{ flag, setting, value string }{
		{"count", "gpus", o.count}, {"gpu-memory", "gpu-memory", o.gpuMemory}, {"name", "name", o.name},
	} {
		switch {
		case !c.IsSet(given.flag):
		case len(words) != 1 || words[0] != given.setting:
			return command.UsageError("--%s is the value of %s: write `genv envs config %[2]s --%[1]s VALUE`",
				given.flag, given.setting)
		default:
			words = append(words, given.value)
		}
	}
	if len(words) > 2 {
		return command.UsageError("unexpected argument %q; put a value with spaces in quotes", words[2])
	}
	if len(words) > 0 {
		i := slices.IndexFunc(o.which, func(s environment.Configurable) bool { return s.Name == words[0] })
		if i < 0 {
			return command.UsageError("unknown setting %q: write one of gpu-memory gpus name", words[0])
		}
		o.which = o.which[i : i+1]
	}
	o.value = len(words) == 2
	switch {
	case o.value && words[1] == "":
		return command.UsageError("the value is empty: write `genv config %s --clear` to remove it", words[0])
	case o.value && o.clear || o.load && (o.value || o.clear || o.save):
		return command.UsageError("a value, --clear and --load exclude each other, and --load --save")
	case o.value:
		return o.which[0].Set(&o.set, words[1])
	}
	return nil
}

func (p *userCommands) config(c *cli.Context, o *configOptions) error {
	if err := o.request(c); err != nil {
		return err
	}
	who := p.person()
	eid, err := who.active(c.Context)
	if err != nil {
		return err
	}
	if !o.changes() && (o.save || !o.quiet) {
		return p.showOrSave(c.Context, who, eid, o)
	}
	var home string
	if o.load || o.save {
		home, err = p.home()
	}
	if o.load && err == nil {
		err = loadSettings(home, &o.set, o.which)
	}
	if err != nil {
		return err
	}
	result, err := p.inShell(c.Context, who, func(ctx context.Context, eid snapshot.EnvID) (change.Result, error) {
		if !o.changes() {
			return who.look(ctx, eid)
		}
		changed := o.change(eid)
		changed.Configure.Resize = true
		return who.changeIn(ctx, eid, changed)
	})
	if err != nil || !o.save {
		return err
	}
	return saveSettings(home, &result.Config, o.which)
}

func (o *configOptions) changes() bool { return o.value || o.clear || o.load }

func (p *userCommands) showOrSave(ctx context.Context, who *hostUser, eid snapshot.EnvID, o *configOptions) error {
	files, err := who.StateFiles(ctx)
	if err != nil {
		return err
	}
	env, noEnvironment := who.mine(&files, eid)
	switch {
	case env == nil:
		return noEnvironment
	case o.save:
		dir, err := p.home()
		if err == nil {
			err = saveSettings(dir, &env.Config, o.which)
		}
		return err
	case !o.quiet:
		_, err = fmt.Fprint(p.Out, text.PrintableLines(configText(&env.Config, o.which)))
	}
	return err
}

// configText is the value alone for a single setting.
func configText(config *snapshot.EnvConfig, which []environment.Configurable) string {
	var b strings.Builder
	for _, s := range which {
		value := s.Get(config)
		switch {
		case value == "":
		case len(which) == 1:
			b.WriteString(value + "\n")
		default:
			b.WriteString(s.Name + ": " + value + "\n")
		}
	}
	return b.String()
}

func (o *configOptions) change(eid snapshot.EnvID) change.Change {
	configure := &change.Configure{EID: eid, Set: o.set}
	for _, s := range o.which {
		if o.clear {
			configure.Clear = append(configure.Clear, s.Name)
		}
	}
	return change.Change{Configure: configure}
}

func (p *userCommands) homeCommand() *cli.Command {
	quiet := false
	return &cli.Command{
		Name: "home", Usage: "print the folder in which configuration is saved",
		Flags: []cli.Flag{command.Bool(&quiet, "quiet,q", "print nothing if there is none, and exit with 0")},
		Action: func(*cli.Context) error {
			dir, err := p.home()
			if err == nil {
				_, err = fmt.Fprintln(p.Out, text.PrintableLines(dir))
			} else if quiet {
				return nil
			}
			return err
		},
	}
}

//nolint:revive,staticcheck // 1.4.3's words
var errNoHome = errors.New(`Could not find any Genv configuration directory.

Create a directory named '.genv' under one of the following directories:
  1) Current working directory (i.e. $PWD)
  2) Home directory (i.e. $HOME)
`)

// home is the folder .genv of the working directory, or of the user's home. It must be the user's own and no link, so
// that no other user can configure this one's environments.
func (p *userCommands) home() (string, error) {
	working, _ := os.Getwd() // "" if removed
	for _, parent := range []string{working, p.Getenv("HOME")} {
		if !filepath.IsAbs(parent) {
			continue
		}
		dir := filepath.Join(parent, ".genv")
		if info, err := os.Lstat(dir); err == nil && info.IsDir() {
			if stat, ok := info.Sys().(*syscall.Stat_t); ok && int64(stat.Uid) == int64(os.Getuid()) {
				return dir, nil
			}
		}
	}
	return "", errNoHome
}

const maxSetting = 4096 // bytes, more than any value takes

// loadSettings reads a file per setting, with its value as the only line.
func loadSettings(dir string, config *snapshot.EnvConfig, which []environment.Configurable) error {
	for _, s := range which {
		data, err := folder.ReadRegular(filepath.Join(dir, s.Name), maxSetting)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = s.Set(config, strings.TrimSuffix(string(data), "\n"))
		}
		if err != nil {
			return fmt.Errorf("the saved configuration in %s: %w", filepath.Join(dir, s.Name), err)
		}
	}
	return nil
}

func saveSettings(dir string, config *snapshot.EnvConfig, which []environment.Configurable) error {
	for _, s := range which {
		path, text := filepath.Join(dir, s.Name), s.Get(config)
		if text == "" {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			continue
		}
		if err := folder.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			return fmt.Errorf("save the configuration: %w", err)
		}
	}
	return nil
}
