package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
)

// policyFlags are those of `enforce`, here and on a fleet.
func policyFlags() []cli.Flag {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "interval", Value: "10", Usage: "time between cycles, in seconds or as 500ms; 0 runs once"},
		&cli.IntFlag{Name: "cycles", Usage: "end after `N` cycles; 0 never ends"},
		&cli.BoolFlag{Name: "dry-run", Usage: "say what would be done and do nothing"},
		&cli.IntFlag{Name: "max-devices-per-user", Usage: "devices that a user may have attached on all hosts together"},
		&cli.StringSliceFlag{Name: "max-devices-for-user", Usage: "the same for single users, as `USER=N` …"},
	}
	flags = append(flags, onOff(enforce.RuleNonEnvProcesses, "terminate processes that are in no environment (off)")...)
	flags = append(flags, onOff(enforce.RuleEnvDevices, "terminate processes on devices that are not attached (on)")...)
	return append(flags, onOff(enforce.RuleEnvMemory, "terminate processes of environments over their memory capacity (on)")...)
}

func onOff(rule enforce.Rule, text string) []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: string(rule), Usage: text},
		&cli.BoolFlag{Name: "no-" + string(rule), Usage: "do not", Hidden: true},
	}
}

// policyOf reads the policy from the flags.
func policyOf(c *cli.Context) (enforce.Flags, error) {
	policy := enforce.DefaultFlags()
	for rule, on := range map[enforce.Rule]*bool{
		enforce.RuleNonEnvProcesses: &policy.NonEnvProcesses,
		enforce.RuleEnvDevices:      &policy.EnvDevices,
		enforce.RuleEnvMemory:       &policy.EnvMemory,
	} {
		name, negation := string(rule), "no-"+string(rule)
		switch yes, no := isGiven(c, name), isGiven(c, negation); {
		case yes && no:
			return policy, usage("--%s and --%s exclude each other", name, negation)
		case yes:
			*on = given(c, name).Bool(name)
		case no:
			*on = !given(c, negation).Bool(negation)
		}
	}
	if isGiven(c, "max-devices-per-user") {
		n := given(c, "max-devices-per-user").Int("max-devices-per-user")
		if n < 0 {
			return policy, usage("--max-devices-per-user %d: a cap is 0 or more", n)
		}
		policy.MaxDevicesPerUser = &n
	}
	var err error
	policy.MaxDevicesForUser, err = userCaps(allGiven(c, "max-devices-for-user"))
	return policy, err
}

// userCaps reads john=3 paul=2, each word also with commas.
func userCaps(words []string) (map[snapshot.Username]int, error) {
	caps := make(map[snapshot.Username]int)
	for _, word := range words {
		for pair := range strings.SplitSeq(word, ",") {
			user, number, ok := strings.Cut(pair, "=")
			n, err := strconv.Atoi(number)
			if !ok || user == "" || err != nil || n < 0 {
				return nil, usage("--max-devices-for-user %q: write USER=N with N of 0 or more, such as john=3", pair)
			}
			if old, twice := caps[snapshot.Username(user)]; twice && old != n {
				return nil, usage("--max-devices-for-user: %s has both %d and %d", user, old, n)
			}
			caps[snapshot.Username(user)] = n
		}
	}
	return caps, nil
}

// scheduleOf reads --interval and --cycles.
func scheduleOf(c *cli.Context) (controller.Schedule, error) {
	text := given(c, "interval").String("interval")
	interval, err := duration(text)
	if err != nil || interval < 0 {
		return controller.Schedule{}, usage("--interval %q: write seconds, such as 10, or a duration such as 500ms", text)
	}
	cycles := given(c, "cycles").Int("cycles")
	if cycles < 0 {
		return controller.Schedule{}, usage("--cycles %d: write 0 or more", cycles)
	}
	return controller.Schedule{Interval: interval, Cycles: cycles}, nil
}

// duration reads seconds without a unit, or a duration with one.
func duration(text string) (time.Duration, error) {
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return time.ParseDuration(text)
	}
	if !(seconds >= 0 && seconds < 1e9) { // so that neither NaN nor infinity passes
		return 0, strconv.ErrRange
	}
	return time.Duration(seconds * float64(time.Second)), nil
}
