package command

import (
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// NoPolicy as the value of --policy uses no policy file, not even the default one.
const NoPolicy = "none"

// appliedConfig are the flags that were set from files.
type appliedConfig []configValue

// applyConfig sets the flags of a command that neither the command line nor an environment
// variable sets, from the files.
func applyConfig(p *Program, c *cli.Context, commands Commands) (appliedConfig, error) {
	files, err := readConfigs(p, commands)
	if err != nil {
		return nil, err
	}
	a := application{program: p, context: c}
	if err = a.set(valuesFor(c.Command, files)); err == nil {
		err = a.findPolicy()
	}
	if err != nil {
		return nil, err
	}
	a.log()
	return a.applied, nil
}

// readConfigs reads all config.yaml, the first one first.
func readConfigs(p *Program, commands Commands) ([]*configFile, error) {
	if _, leftOut := configFolders(p.Getenv); leftOut != nil {
		p.Warn("genv: " + leftOut.Error())
	}
	var files []*configFile
	for _, path := range ConfigPaths(p.Getenv, ConfigFile) {
		data, err := readAll(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, UsageError("%w", err)
		}
		file, err := parseConfig(path, data, onHosts(commands(*p, remoteSection)))
		if err != nil {
			return nil, UsageError("%w", err)
		}
		p.Warn(file.warnings...)
		files = append(files, file)
	}
	return files, nil
}

// onHosts are the commands below `genv remote`.
func onHosts(commands []*cli.Command) []*cli.Command {
	return commands[slices.IndexFunc(commands, func(c *cli.Command) bool { return c.Name == remoteSection })].Subcommands
}

func readAll(path string) ([]byte, error) {
	file, err := OpenConfig(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, strictyaml.MaxSize+1))
}

// application is values on their way to the flags of a command.
type application struct {
	program *Program
	context *cli.Context
	applied appliedConfig
	policy  string // the default file that is used
}

// set sets the interval first: whether others are set depends on it.
func (a *application) set(values map[string]configValue) error {
	c := a.context
	named := IsGiven(c, "host") || IsGiven(c, "hostfile")
	for _, name := range append([]string{"interval"}, sorted(values)...) {
		v, ok := values[name]
		if !ok || IsGiven(c, name) || named && (namesHosts(v) || name == "exclude") || !a.applies(name) {
			continue
		}
		for _, word := range v.Words {
			if err := c.Set(name, word); err != nil {
				return UsageError("%s: --%s %q: %w", v.Place, name, word, err)
			}
		}
		a.applied = append(a.applied, v)
	}
	return nil
}

// applies says whether a flag that isn't given is to be set.
func (a *application) applies(name string) bool {
	flag := FlagOf(a.context.Command, name)
	for _, word := range CategoryOf(flag) {
		if variable, ok := strings.CutPrefix(word, "$"); ok && a.program.Getenv(variable) != "" {
			return false
		}
	}
	// A dry run may run alongside a controller, whose log and listeners these are.
	dryRun := Bool(a.context, "dry-run")
	switch {
	case Has(flag, Loop):
		return !dryRun && !a.runsOnce()
	case Has(flag, Record):
		return !dryRun
	}
	return Has(flag, Site)
}

// runsOnce says whether the command is a loop that runs once: it serves nothing then.
func (a *application) runsOnce() bool {
	interval, err := text.ParseDuration(String(a.context, "interval")) // which isn't checked yet
	return err == nil && interval == 0
}

// findPolicy sets --policy to the default file, if there is one. It stays the same at a
// reload, so that a file that is gone then is an error and never means no policy.
func (a *application) findPolicy() error {
	c := a.context
	if !Takes(c.Command, "policy") || IsGiven(c, "policy") {
		return nil
	}
	var err error
	if a.policy, err = FindConfig(a.program.Getenv, PolicyFile); err != nil || a.policy == "" {
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
func (a appliedConfig) Explain(err error) error {
	if err == nil || ExitCode(err) != ExitFailed {
		return err
	}
	for _, v := range a {
		if v.isIn(err.Error()) {
			err = UsageError("%w (--%s is set at %s)", err, v.Flag, v.Place)
		}
	}
	return err
}

// isIn says whether a message is about the flag.
func (v *configValue) isIn(message string) bool {
	if v.short != "" && strings.HasPrefix(message, "-"+v.short) {
		return true
	}
	_, after, found := strings.Cut(message, "--"+v.Flag)
	return found && (after == "" || !strings.ContainsAny(after[:1], "-abcdefghijklmnopqrstuvwxyz"))
}
