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
// variable sets, from the files. Commands that read no configuration are left alone.
func Apply(p *command.Program, c *cli.Context) (Applied, error) {
	words := strings.Fields(c.Command.HelpName)
	if len(words) < 2 || !slices.Contains([]string{remote, "enforce", "policy"}, words[1]) {
		return nil, nil
	}
	files, err := read(p)
	if err != nil {
		return nil, err
	}
	sections := []string{c.Command.Name, top}
	if words[1] == remote {
		sections = []string{c.Command.Name, remote, top}
	}
	a := application{program: p, context: c, values: merge(files, sections)}
	a.addOfEnforce(merge(files, []string{"enforce"}))
	for _, flag := range a.order() {
		if !a.applies(flag) {
			continue
		}
		for _, word := range a.values[flag].Words {
			if err := c.Set(flag, word); err != nil {
				return nil, command.UsageError("%s: --%s %q: %w", a.values[flag].Place, flag, word, err)
			}
		}
		a.applied = append(a.applied, a.values[flag])
	}
	if err := a.findPolicy(); err != nil {
		return nil, err
	}
	a.log()
	return a.applied, nil
}

// leaderFlags are those about a leader among several controllers.
func leaderFlags() []string {
	return []string{"leader", "leader-ca", "leader-cert", "leader-key", "leader-login"}
}

// ofEnforce are the flags that a command takes from `enforce:` if its own section has none: it
// shows or changes what enforce keeps there.
func ofEnforce(command string) []string {
	switch command {
	case "doctor":
		return leaderFlags()
	case "exempt":
		return []string{"state-dir", "audit-log"}
	case "forget":
		return []string{"state-dir", "audit-log", "history", "history-fleet"}
	case "report":
		return []string{"state-dir", "history", "history-fleet"}
	case "history":
		return []string{"audit-log"}
	}
	return nil
}

func (a *application) addOfEnforce(enforce map[string]Value) {
	for _, flag := range ofEnforce(a.context.Command.Name) {
		if _, own := a.values[flag]; !own {
			if value, ok := enforce[flag]; ok {
				a.values[flag] = value
			}
		}
	}
}

// read reads all config.yaml, the first one first.
func read(p *command.Program) ([]*File, error) {
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
		file, err := Parse(path, data)
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
	values  map[string]Value // by flag
	applied Applied
	policy  string // the default file that is used
}

// order is the order in which flags are set: others depend on the interval.
func (a *application) order() []string {
	flags := sorted(a.values)
	if i := slices.Index(flags, "interval"); i > 0 {
		flags = slices.Insert(slices.Delete(flags, i, i+1), 0, "interval")
	}
	return flags
}

func sorted(values map[string]Value) []string { return slices.Sorted(maps.Keys(values)) }

// applies says whether a flag is to be set.
func (a *application) applies(flag string) bool {
	c := a.context
	if !command.Takes(c.Command, flag) || command.IsGiven(c, flag) {
		return false
	}
	// A dry run may run beside a controller, whose log and listeners these are.
	dryRun := command.Bool(c, "dry-run")
	if slices.Contains(leaderFlags(), flag) { // others take no part
		return !a.runsOnce() && !dryRun
	}
	switch flag {
	case "host", "hostfile", "exclude": // in `remote history` --host is another flag
		chosen := slices.ContainsFunc(a.applied, func(v Value) bool { return v.Flag == "host" || v.Flag == "hostfile" })
		given := !chosen && (command.IsGiven(c, "host") || command.IsGiven(c, "hostfile"))
		return command.Takes(c.Command, "hostfile") && !given
	case "socket":
		return !a.runsOnce() && !dryRun && a.program.Getenv("GENV_SOCKET") == ""
	case "metrics", "web", "web-names", "web-host", "web-config":
		return !a.runsOnce() && !dryRun
	case "audit-log":
		switch c.Command.Name {
		case "enforce":
			return !dryRun
		case "history":
			return a.program.Getenv("GENV_AUDIT_LOG") == ""
		}
	case "state-dir":
		return a.program.Getenv("STATE_DIRECTORY") == ""
	}
	return true
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
		if names(err.Error(), v.Flag) {
			err = command.UsageError("%w (--%s is set at %s)", err, v.Flag, v.Place)
		}
	}
	return err
}

// names says whether a message is about a flag.
func names(message, flag string) bool {
	short := map[string]string{"host": "-H", "exclude": "-x", "username": "-l"}[flag]
	if short != "" && strings.HasPrefix(message, short) {
		return true
	}
	_, after, found := strings.Cut(message, "--"+flag)
	return found && (after == "" || !strings.ContainsAny(after[:1], "-abcdefghijklmnopqrstuvwxyz"))
}
