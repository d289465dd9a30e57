package enforcement

import (
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"

	"github.com/seed-3119e985/genv/cmd/genv/command"
)

// enforceFlags are those of `enforce`, here and on a fleet.
func Flags() []cli.Flag {
	return append(RuleFlags(),
		&cli.StringFlag{Name: "interval", Value: "10", Usage: "`TIME` between cycles, in seconds or as 500ms; 0 runs once"},
		&cli.IntFlag{Name: "cycles", Usage: "end after `N` cycles; 0 never ends"},
		&cli.BoolFlag{Name: "dry-run", Usage: "say what would be done, and why, and do nothing"},
		&cli.BoolFlag{Name: "exit-code", Usage: "exit with 10 when a dry run finds something to do"},
		&cli.StringFlag{Name: "audit-log", Usage: "append what is found, decided and done to `FILE`, as JSON lines"},
		&cli.StringFlag{Name: "audit-size", Value: "64m", Usage: "rotate that file when it is of this `SIZE`"},
		&cli.IntFlag{Name: "audit-keep", Value: audit.DefaultKeep, Usage: "keep `N` rotated files"},
		&cli.StringFlag{Name: "state-dir", DefaultText: "~/.local/state/genv, or systemd's StateDirectory=", Usage: "remember in `DIR` since when findings are there and what users were told, over a restart"},
		&cli.BoolFlag{Name: "act-unrecorded", Usage: "go on acting when that file cannot be written"},
		command.FormatFlag(),
	)
}

// RuleFlags say what holds: a policy file, and what stands over it.
func RuleFlags() []cli.Flag {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "policy", Usage: "policy `FILE`; flags stand over it"},
		&cli.IntFlag{Name: "max-devices-per-user", DefaultText: "no cap", Usage: "end attachments of a user beyond `N` devices on all hosts together"},
		&cli.StringSliceFlag{Name: "max-devices-for-user", Usage: "the same for single users: `USER=N`, several values allowed"},
	}
	flags = append(flags, onOff(enforce.RuleNonEnvProcesses, "terminate processes that are in no environment", "off")...)
	flags = append(flags, onOff(enforce.RuleEnvDevices, "terminate processes on devices that are not attached", "on")...)
	return append(flags, onOff(enforce.RuleEnvMemory, "terminate processes of environments over their memory capacity", "on")...)
}

func onOff(rule enforce.Rule, text, without string) []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: string(rule), Usage: text, DefaultText: without},
		&cli.BoolFlag{Name: "no-" + string(rule), Usage: "do not"},
	}
}

// flagsOver puts the flags that were given over a policy.
func flagsOver(c *cli.Context, file *policy.File) error {
	for rule, value := range map[enforce.Rule]*policy.Value[bool]{
		enforce.RuleNonEnvProcesses: &file.Flags.NonEnvProcesses,
		enforce.RuleEnvDevices:      &file.Flags.EnvDevices,
		enforce.RuleEnvMemory:       &file.Flags.EnvMemory,
	} {
		name, negation := string(rule), "no-"+string(rule)
		switch yes, no := command.IsGiven(c, name), command.IsGiven(c, negation); {
		case yes && no:
			return command.Usage("--%s and --%s exclude each other", name, negation)
		case yes:
			*value = flagValue(name, command.Given(c, name).Bool(name))
		case no:
			*value = flagValue(negation, !command.Given(c, negation).Bool(negation))
		}
	}
	if command.IsGiven(c, "max-devices-per-user") {
		n := command.Given(c, "max-devices-per-user").Int("max-devices-per-user")
		if n < 0 {
			return command.Usage("--max-devices-per-user %d: a cap is 0 or more", n)
		}
		file.Flags.MaxDevices = policy.Value[int]{On: true, Value: n, From: policy.Source{By: "--max-devices-per-user"}}
	}
	caps, err := userCaps(command.AllGiven(c, "max-devices-for-user"))
	file.UserFlags = make(map[snapshot.Username]policy.Settings, len(caps))
	for user, n := range caps {
		limit := policy.Value[int]{On: true, Value: n, From: policy.Source{By: "--max-devices-for-user"}}
		file.UserFlags[user] = policy.Settings{MaxDevices: limit}
	}
	return err
}

func flagValue(name string, on bool) policy.Value[bool] {
	return policy.Value[bool]{On: on, Value: on, From: policy.Source{By: "--" + name}}
}

// userCaps reads john=3 paul=2, each word also with commas.
func userCaps(words []string) (map[snapshot.Username]int, error) {
	caps := make(map[snapshot.Username]int)
	for _, word := range words {
		for pair := range strings.SplitSeq(word, ",") {
			user, number, ok := strings.Cut(pair, "=")
			n, err := strconv.Atoi(number)
			if !ok || user == "" || err != nil || n < 0 {
				return nil, command.Usage("--max-devices-for-user %q: write USER=N with N of 0 or more, such as john=3", pair)
			}
			if old, twice := caps[snapshot.Username(user)]; twice && old != n {
				return nil, command.Usage("--max-devices-for-user: %s has both %d and %d", user, old, n)
			}
			caps[snapshot.Username(user)] = n
		}
	}
	return caps, nil
}

// ScheduleOf reads --interval and --cycles.
func ScheduleOf(c *cli.Context) (controller.Schedule, error) {
	text := command.Given(c, "interval").String("interval")
	interval, err := command.Duration(text)
	if err != nil || interval < 0 {
		return controller.Schedule{}, command.Usage("--interval %q: write seconds, such as 10, or a duration such as 500ms", text)
	}
	cycles := command.Given(c, "cycles").Int("cycles")
	if cycles < 0 {
		return controller.Schedule{}, command.Usage("--cycles %d: write 0 or more", cycles)
	}
	return controller.Schedule{Interval: interval, Cycles: cycles}, nil
}
