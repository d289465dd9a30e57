package configfile

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

// NoPolicy as the value of --policy uses no policy file, not even the default one.
const NoPolicy = "none"

// Applied are the flags that were set from files.
type Applied []Value

// Apply sets the flags of a command that neither the command line nor an environment
// variable sets, from the files. Commands that read no configuration are left alone. onHosts
// makes the commands below `genv remote`.
func Apply(p *command.Program, c *cli.Context, onHosts func() []*cli.Command) (Applied, error) {
	words := strings.Fields(c.Command.HelpName)
	if len(words) < 2 || !slices.Contains([]string{remote, "enforce", "policy"}, words[1]) {
		return nil, nil
	}
	files, err := read(p, onHosts)
	if err != nil {
		return nil, err
	}
	sections := []string{c.Command.Name, top}
	if words[1] == remote {
		sections = []string{c.Command.Name, remote, top}
	}
	values := merge(files, []string{"enforce"}) // of which a command takes what it shows or changes
	maps.DeleteFunc(values, func(name string, _ Value) bool {
		return !command.Has(command.FlagOf(c.Command, name), command.Shared)
	})
	maps.Copy(values, merge(files, sections))
	a := application{program: p, context: c}
	if err = a.set(values); err == nil {
		err = a.findPolicy()
	}
	if err != nil {
		return nil, err
	}
	a.log()
	return a.applied, nil
}

// read reads all config.yaml, the first one first.
func read(p *command.Program, onHosts func() []*cli.Command) ([]*File, error) {
	if _, leftOut := folders(p.Getenv); leftOut != nil {
		p.Warn("genv: " + leftOut.Error())
	}
	var files []*File
	for _, path := range Paths(p.Getenv, Config) {
		data, err := readAll(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, command.UsageError("%w", err)
		}
		file, err := Parse(path, data, onHosts())
		if err != nil {
			return nil, command.UsageError("%w", err)
		}
		files = append(files, file)
	}
	return files, nil
}

func readAll(path string) ([]byte, error) {
	file, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, strictyaml.MaxSize+1))
}

// application is values on their way to the flags of a command.
type application struct {
	program *command.Program
	context *cli.Context
	applied Applied
	policy  string // the default file that is used
}

// set sets the interval first: whether others are set depends on it.
func (a *application) set(values map[string]Value) error {
	c := a.context
	named := command.IsGiven(c, "host") || command.IsGiven(c, "hostfile")
	for _, name := range append([]string{"interval"}, sorted(values)...) {
		v, ok := values[name]
		if !ok || command.IsGiven(c, name) || named && (namesHosts(v) || name == "exclude") || !a.applies(name) {
			continue
		}
		for _, word := range v.Words {
			if err := c.Set(name, word); err != nil {
				return command.UsageError("%s: --%s %q: %w", v.Place, name, word, err)
			}
		}
		a.applied = append(a.applied, v)
	}
	return nil
}

// applies says whether a flag that isn't given is to be set.
func (a *application) applies(name string) bool {
	flag := command.FlagOf(a.context.Command, name)
	for _, word := range command.CategoryOf(flag) {
		if variable, ok := strings.CutPrefix(word, "$"); ok && a.program.Getenv(variable) != "" {
			return false
		}
	}
	// A dry run may run alongside a controller, whose log and listeners these are.
	dryRun := command.Bool(a.context, "dry-run")
	switch {
	case command.Has(flag, command.Loop):
		return !dryRun && !a.runsOnce()
	case command.Has(flag, command.Record):
		return !dryRun
	}
	return command.Has(flag, command.Site)
}

// runsOnce says whether the command is a loop that runs once: it serves nothing then.
func (a *application) runsOnce() bool {
	interval, err := command.Duration(a.context, "interval")
	return a.context.Command.Name == "enforce" && err == nil && interval == 0
}

// findPolicy sets --policy to the default file, if there is one. It stays the same at a
// reload, so that a file that is gone then is an error and never means no policy.
func (a *application) findPolicy() error {
	c := a.context
	if !command.Takes(c.Command, "policy") || command.IsGiven(c, "policy") {
		return nil
	}
	var err error
	if a.policy, err = Find(a.program.Getenv, Policy); err != nil || a.policy == "" {
		return err
	}
	return c.Set("policy", a.policy)
}

// log says with -v where values come from, and always which policy is enforced.
func (a *application) log() {
	log := a.program.Logger(a.context)
	for _, v := range a.applied {
		log.Debug().Str("flag", "--"+v.Flag).Strs("value", v.Words).Stringer("from", v.Place).Msg("set by the configuration")
	}
	if a.policy != "" && a.context.Command.Name == "enforce" {
		log = log.Level(zerolog.InfoLevel)
		log.Info().Str("policy", a.policy).Msg("the default policy file is used; --policy none uses none")
	}
}

// Explain adds to an error about flags where those are set that aren't in the command line.
func (a Applied) Explain(err error) error {
	if err == nil || command.ExitCode(err) != command.ExitFailed {
		return err
	}
	for _, v := range a {
		if v.isIn(err.Error()) {
			err = command.UsageError("%w (--%s is set at %s)", err, v.Flag, v.Place)
		}
	}
	return err
}

// isIn says whether a message is about the flag.
func (v *Value) isIn(message string) bool {
	if v.short != "" && strings.HasPrefix(message, "-"+v.short) {
		return true
	}
	_, after, found := strings.Cut(message, "--"+v.Flag)
	return found && (after == "" || !strings.ContainsAny(after[:1], "-abcdefghijklmnopqrstuvwxyz"))
}
