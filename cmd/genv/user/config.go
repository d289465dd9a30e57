package user

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// configOptions is what the flags of `genv config` and `genv envs config` say.
type configOptions struct {
	clear, save, load, quiet bool
	count, gpuMemory, name   string

	which []environment.Configurable // of the settings, by request
	value *string                    // nil to show
}

func (p *program) configCommand() *cli.Command {
	o := new(configOptions)
	return &cli.Command{
		Name:      "config",
		Usage:     "show or change the configuration of this environment",
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

// valueFlags are how programs give `genv envs config` a value, each for one setting.
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
		one, err := environment.SettingNamed(words[0])
		if err != nil {
			return err
		}
		o.which = []environment.Configurable{one}
	}
	if len(words) == 2 {
		if words[1] == "" {
			return command.UsageError("the value is empty: write `genv config %s --clear` to remove it", words[0])
		}
		o.value = &words[1]
	}
	return o.check()
}

func (o *configOptions) check() error {
	asked := slices.DeleteFunc([]bool{o.value != nil, o.clear, o.load, o.save && o.load},
		func(on bool) bool { return !on })
	if len(asked) > 1 {
		return command.UsageError("a value, --clear and --load exclude each other, and --load --save")
	}
	if o.value != nil {
		var probe snapshot.EnvConfig
		return o.which[0].Set(&probe, *o.value)
	}
	return nil
}

func (p *program) config(c *cli.Context, o *configOptions) error {
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
		if home, err = p.home(); err != nil {
			return err
		}
	}
	var saved snapshot.EnvConfig
	if o.load {
		if err := loadSettings(home, &saved, o.which); err != nil {
			return err
		}
	}
	by := who.look
	if o.changes() {
		by = func(ctx context.Context, eid snapshot.EnvID) (change.Result, error) {
			changed, err := o.change(eid, &saved)
			if err != nil {
				return change.Result{}, err
			}
			changed.Configure.Resize = true
			return who.changeIn(ctx, eid, changed)
		}
	}
	result, err := p.inShell(c.Context, who, by)
	if err == nil && o.save {
		config := result.Config
		err = saveSettings(home, &config, o.which)
	}
	return err
}

// changes says whether anything but the saved files and the shell is to be changed.
func (o *configOptions) changes() bool { return o.value != nil || o.clear || o.load }

// showOrSave only reads the state files.
func (p *program) showOrSave(ctx context.Context, who *hostUser, eid snapshot.EnvID, o *configOptions) error {
	files, err := who.StateFiles(ctx)
	if err != nil {
		return err
	}
	env := files.Environment(eid)
	if env == nil {
		_, err := who.mine(&files, eid)
		return err
	}
	if o.save {
		dir, err := p.home()
		if err != nil {
			return err
		}
		return saveSettings(dir, &env.Config, o.which)
	}
	if !o.quiet {
		_, err = fmt.Fprint(p.Out, text.PrintableLines(configText(&env.Config, o.which)))
	}
	return err
}

// configText lists the settings that have a value; a single one without its name.
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

// change sets the requested settings: to the value, to what was saved, or to none.
func (o *configOptions) change(eid snapshot.EnvID, saved *snapshot.EnvConfig) (change.Change, error) {
	configure := &change.Configure{EID: eid}
	var config snapshot.EnvConfig
	for _, s := range o.which {
		text := s.Get(saved)
		switch {
		case o.value != nil:
			text = *o.value
		case o.load && text == "":
			continue // it was not saved
		case o.clear:
			configure.Clear = append(configure.Clear, change.ConfigField(s.Name))
			continue
		}
		if err := s.Set(&config, text); err != nil {
			return change.Change{}, err
		}
	}
	configure.Set = config
	return change.Change{Configure: configure}, nil
}
