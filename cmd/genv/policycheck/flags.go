package policycheck

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// RuleFlags are the flags that name a policy file and override it.
type RuleFlags struct {
	path       string
	maxDevices int
	perUser    []string
	on, not    map[enforce.Rule]*bool
	counts     bool // by --non-env-processes=count
}

// PolicyFlag names a policy file.
func (o *RuleFlags) PolicyFlag() cli.Flag {
	return command.String(&o.path, "policy", "policy `FILE`, or none; by default policy.yaml in ~/.config/genv or "+
		"/etc/genv; flags override it").Config(command.Top | command.Shared | command.OrNone)
}

// Flags returns the flags.
func (o *RuleFlags) Flags() []cli.Flag {
	o.on, o.not = map[enforce.Rule]*bool{}, map[enforce.Rule]*bool{}
	flags := []cli.Flag{
		o.PolicyFlag(),
		command.Int(&o.maxDevices, "max-devices-per-user", "detach the GPUs of a user beyond `N` on all hosts "+
			"together").AtLeast(0).Config(command.OfPolicy).DefaultText("no cap"),
		command.Strings(&o.perUser, "max-devices-for-user", "the same for one user: `USER=N`; several values allowed").
			Many().Config(command.OfPolicy),
	}
	for _, rule := range []struct {
		rule          enforce.Rule
		text, without string
	}{
		{enforce.RuleNonEnvProcesses, "terminate processes that are in no environment; =count counts their GPUs", "off"},
		{enforce.RuleEnvDevices, "terminate processes on GPUs that are not attached", "on"},
		{enforce.RuleEnvMemory, "terminate processes of environments over their memory capacity", "on"},
	} {
		name, on, not := string(rule.rule), new(bool), new(bool)
		o.on[rule.rule], o.not[rule.rule] = on, not
		flag := command.Bool(on, name, rule.text).Config(command.OfPolicy).DefaultText(rule.without)
		if rule.rule == enforce.RuleNonEnvProcesses {
			flag.OrWord("count", &o.counts)
		}
		text, _, _ := strings.Cut(rule.text, ";")
		flags = append(flags, flag, command.Bool(not, "no-"+name, "don't "+text).Config(command.OfPolicy))
	}
	return flags
}

// Read returns the policy: the defaults, overridden by the file and then the flags.
func (o *RuleFlags) Read(c *cli.Context) (*policy.File, error) {
	caps, err := userCaps(o.perUser)
	if err != nil {
		return nil, err
	}
	names := slices.Collect(maps.Keys(caps))
	file := policy.Default()
	if o.path != "" && o.path != command.NoPolicy {
		if file, err = parsePolicy(c, o.path, names); err != nil {
			return nil, err
		}
	} else {
		file.Accounts = aliases(c, names)
	}
	if err := o.override(c, file); err != nil {
		return nil, err
	}
	return file, overrideUsers(file, caps)
}

func (o *RuleFlags) override(c *cli.Context, file *policy.File) error {
	for rule, value := range map[enforce.Rule]*bool{
		enforce.RuleNonEnvProcesses: &file.Flags.NonEnvProcesses,
		enforce.RuleEnvDevices:      &file.Flags.EnvDevices,
		enforce.RuleEnvMemory:       &file.Flags.EnvMemory,
	} {
		name, negation := string(rule), "no-"+string(rule)
		switch yes, no := c.IsSet(name), c.IsSet(negation); {
		case yes && no:
			return command.WrongFlag(name, " and --%s exclude each other", negation)
		case yes:
			*value = *o.on[rule]
			if rule == enforce.RuleNonEnvProcesses && o.counts {
				*value, file.Flags.CountOutside = false, true
			}
			file.Flags.Set(name, fromFlag(name))
		case no:
			*value = !*o.not[rule]
			file.Flags.Set(name, fromFlag(negation))
		}
	}
	if c.IsSet("max-devices-per-user") {
		file.Flags.MaxDevices = new(o.maxDevices)
		file.Flags.Set("max-devices-per-user", fromFlag("max-devices-per-user"))
	}
	return nil
}

func overrideUsers(file *policy.File, caps map[string]int) error {
	file.UserFlags = make(map[snapshot.Username]policy.Settings, len(caps))
	for user, n := range caps {
		name := file.Account(snapshot.Username(user))
		if old, twice := file.UserFlags[name]; twice && *old.MaxDevices != n {
			return command.WrongFlag("max-devices-for-user", ": %s is another name of %s, who has both %d and %d",
				user, name, *old.MaxDevices, n)
		}
		own := policy.Settings{Settings: enforce.Settings{MaxDevices: &n}}
		own.Set("max-devices-per-user", fromFlag("max-devices-for-user"))
		file.UserFlags[name] = own
	}
	return nil
}

func fromFlag(name string) policy.Source { return policy.Source{By: "--" + name} }

// userCaps parses words such as john=3 or john=3,paul=2.
func userCaps(words []string) (map[string]int, error) {
	caps := make(map[string]int)
	for _, word := range words {
		for pair := range strings.SplitSeq(word, ",") {
			at := max(strings.LastIndexByte(pair, '='), 0)
			user := pair[:at]
			n, err := strconv.Atoi(strings.TrimPrefix(pair[at:], "="))
			if err != nil || n < 0 || text.CheckUsername(user) != nil {
				return nil, command.WrongFlag("max-devices-for-user",
					" %q: write USER=N with N of 0 or more, such as john=3", pair)
			}
			if old, twice := caps[user]; twice && old != n {
				return nil, command.WrongFlag("max-devices-for-user", ": %s has both %d and %d", user, old, n)
			}
			caps[user] = n
		}
	}
	return caps, nil
}

func parsePolicy(c *cli.Context, path string, names []string) (*policy.File, error) {
	return parse(path, func(data []byte) (*policy.File, error) {
		file, err := policy.Parse(path, data)
		if err != nil {
			return nil, err
		}
		for _, r := range file.References {
			if r.Kind == policy.ToUser {
				names = append(names, r.Name)
			}
		}
		return policy.ParseFor(path, data, aliases(c, names))
	})
}

// ReadPolicy reads a policy file, with users under the names in it.
func ReadPolicy(path string) (*policy.File, error) {
	return parse(path, func(data []byte) (*policy.File, error) { return policy.Parse(path, data) })
}

func parse(path string, parse func([]byte) (*policy.File, error)) (*policy.File, error) {
	data, err := ReadPolicyFile(path)
	if err != nil {
		return nil, err
	}
	file, err := parse(data)
	if err != nil {
		return nil, command.UsageError("%w; `genv policy check %s` lists all errors", err, path)
	}
	return file, nil
}

// aliases are the other names of users. Without them a rule covers only the name as written.
func aliases(c *cli.Context, names []string) policy.Aliases {
	same, err := SameUsers(c.Context, names, nss.Getent)
	if err != nil {
		fmt.Fprintf(c.App.ErrWriter, "warning: other names of the policy's users are unknown: %v\n", err)
	}
	return same
}

// ReadPolicyFile reads a policy, also from a pipe.
func ReadPolicyFile(path string) ([]byte, error) {
	const most = 4 << 20 // bytes
	f, err := command.OpenAtOnce(path)
	if err != nil {
		return nil, command.UsageError("the policy: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, command.UsageError("the policy: %w", err)
	}
	if len(data) > most {
		return nil, command.UsageError("%s is too long: at most %d bytes are read", path, most)
	}
	return data, nil
}
