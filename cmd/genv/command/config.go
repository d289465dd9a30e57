package command

import (
	"errors"
	"io"
	"io/fs"
	"slices"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// NoPolicy, as the value of --policy, turns off even the default policy file.
const NoPolicy = "none"

// application sets flags from files unless the command line or an environment variable does.
type application struct {
	program *Program
	context *cli.Context
	applied []configValue
	policy  string // the default file, if it is used
}

func (a *application) apply(commands Commands) error {
	files, err := readConfigs(a.program, commands)
	if err == nil {
		err = a.set(valuesFor(a.context.Command, files))
	}
	if err == nil {
		err = a.findPolicy()
	}
	if err == nil {
		a.log()
	}
	return err
}

func readConfigs(p *Program, commands Commands) ([]configFile, error) {
	if _, leftOut := configFolders(p.Getenv); leftOut != nil {
		p.Warn("genv: " + leftOut.Error())
	}
	var files []configFile
	for _, path := range ConfigPaths(p.Getenv, ConfigFile) {
		data, err := readAll(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, UsageError("%w", err)
		}
		file, err := parseConfig(path, data, commandNamed(commands(*p, remoteSection), remoteSection).Subcommands)
		if err != nil {
			return nil, UsageError("%w", err)
		}
		files = append(files, file)
	}
	return files, nil
}

func readAll(path string) ([]byte, error) {
	file, err := OpenConfig(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, strictyaml.MaxSize+1))
}

// set begins with the interval, on which other flags depend.
func (a *application) set(values map[string]configValue) error {
	c := a.context
	named := c.IsSet("host") || c.IsSet("hostfile")
	for _, name := range append([]string{"interval"}, sorted(values)...) {
		v, ok := values[name]
		if !ok || c.IsSet(name) || named && (namesHosts(v) || name == "exclude") || !a.applies(name) {
			continue
		}
		for _, word := range v.Words {
			if err := a.setFlag(name, word); err != nil {
				return UsageError("%s: --%s %q: %w", v.Place, name, word, err)
			}
		}
		a.applied = append(a.applied, v)
	}
	return nil
}

func (a *application) applies(name string) bool {
	c := a.context
	flag := FlagOf(c.Command, name)
	if flag == nil || flag.unless != "" && a.program.Getenv(flag.unless) != "" {
		return false
	}
	// A dry run may run beside a controller, which owns this log and these listeners.
	dryRun := c.Bool("dry-run")
	switch {
	case flag.keys&loop != 0:
		interval, err := text.ParseDuration(c.String("interval")) // not checked yet
		runsOnce := err == nil && interval == 0                   // and serves nothing
		return !dryRun && !runsOnce
	case flag.keys&record != 0:
		return !dryRun
	}
	return flag.keys&Site != 0
}

// findPolicy sets --policy to the default file, if there is one. A reload keeps the path: a missing file is an error
// then, never "no policy".
func (a *application) findPolicy() error {
	if c := a.context; !Takes(c.Command, "policy") || c.IsSet("policy") || c.Args().Present() { // which names one
		return nil
	}
	var err error
	if a.policy, err = FindConfig(a.program.Getenv, PolicyFile); err != nil || a.policy == "" {
		return err
	}
	return a.setFlag("policy", a.policy)
}

func (a *application) setFlag(name, word string) error {
	FlagOf(a.context.Command, name).configured = true
	return a.context.Set(name, word)
}

// GivesAny reports whether the command line gives a flag other than these.
func GivesAny(c *cli.Context, but ...string) bool {
	return slices.ContainsFunc(own(c.Command.Flags), func(f *Flag) bool {
		return f.given && !f.configured && !slices.Contains(but, f.names[0])
	})
}

// log writes with -v where values come from, and always which policy is enforced.
func (a *application) log() {
	log := a.program.Logger(a.context)
	for _, v := range a.applied {
		set := log.Debug().Str("flag", "--"+v.Flag).Strs("value", v.Words)
		set.Stringer("from", v.Place).Msg("set by the configuration")
	}
	if a.policy != "" && a.context.Command.Name == "enforce" {
		log = log.Level(zerolog.InfoLevel)
		log.Info().Str("policy", a.policy).Msg("the default policy file is used; --policy none uses none")
	}
}

// Explain adds to an error about a flag where the configuration sets that flag.
func (a *application) Explain(err error) error {
	exit, ok := errors.AsType[*ExitError](err)
	if !ok || exit.Flag == "" {
		return err
	}
	for _, v := range a.applied {
		if v.Flag == exit.Flag {
			return UsageError("%w (--%s is set at %s)", err, v.Flag, v.Place)
		}
	}
	return err
}
