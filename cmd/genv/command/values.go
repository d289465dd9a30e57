package command

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// checkedFlag is a flag whose value is checked before the action of its command, which reads it without an error.
type checkedFlag interface {
	cli.Flag
	check(c *cli.Context) error
}

// checkValues checks the values of a command's flags, wherever they come from.
func checkValues(c *cli.Context) error {
	for _, flag := range c.Command.Flags {
		if f, ok := flag.(checkedFlag); ok {
			if err := f.check(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// OneOf is a flag that takes one of some words. Completion offers them.
func OneOf(flag *cli.StringFlag, choices []string) cli.Flag { return &choiceFlag{flag, choices} }

type choiceFlag struct {
	*cli.StringFlag
	choices []string
}

func (f *choiceFlag) check(c *cli.Context) error {
	value := String(c, f.Name)
	if value == "" && f.Value == "" { // no word is chosen
		return nil
	}
	return checkChoice(f.Name, value, f.choices)
}

func checkChoice(flag, value string, choices []string) error {
	if !slices.Contains(choices, value) {
		return UsageError("--%s %q: write %s", flag, value, alternatives(choices))
	}
	return nil
}

// SomeOf is a flag that takes one or more of some words.
func SomeOf(flag *cli.StringSliceFlag, choices []string) cli.Flag {
	return &choicesFlag{flag, choices}
}

type choicesFlag struct {
	*cli.StringSliceFlag
	choices []string
}

func (f *choicesFlag) check(c *cli.Context) error {
	values := c.StringSlice(f.Name)
	if len(values) == 0 {
		return UsageError("missing --%s: write one or more of %s", f.Name, strings.Join(f.choices, " "))
	}
	for _, value := range values {
		if err := checkChoice(f.Name, value, f.choices); err != nil {
			return err
		}
	}
	return nil
}

// ChoicesOf are the words that a flag takes; nil if it takes any.
func ChoicesOf(flag cli.Flag) []string {
	switch f := flag.(type) {
	case *choiceFlag:
		return f.choices
	case *choicesFlag:
		return f.choices
	}
	return nil
}

// FormatFlag chooses one of the formats; the first is the default.
func FormatFlag(formats ...string) cli.Flag {
	return OneOf(&cli.StringFlag{Name: "format", Category: Output, Value: formats[0], Usage: fmt.Sprintf("`FORMAT`: %s", alternatives(formats))}, formats)
}

// alternatives are words as a sentence lists them: tui, csv or json.
func alternatives(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// Lasting is a flag that takes a duration of more than 0.
func Lasting(flag *cli.StringFlag) cli.Flag { return &durationFlag{flag, false} }

// LastingOrZero is a flag that takes a duration.
func LastingOrZero(flag *cli.StringFlag) cli.Flag { return &durationFlag{flag, true} }

type durationFlag struct {
	*cli.StringFlag
	orZero bool
}

func (f *durationFlag) check(c *cli.Context) error {
	value := String(c, f.Name)
	if value == "" && !IsGiven(c, f.Name) {
		return nil
	}
	d, err := text.ParseDuration(value)
	switch {
	case err != nil:
		return UsageError("--%s %w", f.Name, err)
	case d == 0 && !f.orZero:
		return UsageError("--%s %q: write a duration of more than 0", f.Name, value)
	}
	return nil
}

// Duration is the value of a flag that Lasting or LastingOrZero made; 0 if it isn't given and has no default.
func Duration(c *cli.Context, flag string) time.Duration {
	d, _ := text.ParseDuration(String(c, flag)) // which was checked
	return d
}

// AtLeast is a flag that takes a number from a least one on.
func AtLeast(least int, flag *cli.IntFlag) cli.Flag { return &numberFlag{flag, least} }

type numberFlag struct {
	*cli.IntFlag
	least int
}

func (f *numberFlag) check(c *cli.Context) error {
	if n := Given(c, f.Name).Int(f.Name); n < f.least {
		return UsageError("--%s %d: write %d or more", f.Name, n, f.least)
	}
	return nil
}
