package command

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Flag is bound to a field of a command's options. The initial value of the field is the default.
//
//	o := &options{interval: 10 * time.Second}
//	flags := []cli.Flag{command.Duration(&o.interval, "interval,i", "`TIME` between two looks").Config(command.Site)}
type Flag struct {
	names       []string // aliases follow the name
	usage       string
	preset      string // the default
	defaultText string // what help prints instead
	hidden      bool
	keys        InConfig
	unless      string   // a variable that takes precedence over config.yaml
	choices     []string // nil for any
	isBool      bool
	word        string // what a bool takes after "="; empty for nothing
	isList      bool
	orZero      bool
	many        bool // see Many

	set        func(word string) error
	check      func(f *Flag) error // runs before the command; nil for none
	words      []string            // as given
	given      bool
	configured bool // given by config.yaml
}

func newFlag(names, usage, preset string, set func(string) error) *Flag {
	return &Flag{names: strings.Split(names, ","), usage: usage, preset: preset, set: set}
}

// String returns a flag with any text as its value.
func String[T ~string](to *T, names, usage string) *Flag {
	return newFlag(names, usage, string(*to), func(word string) error {
		*to = T(word)
		return nil
	})
}

// Strings returns a flag that may be repeated.
func Strings(to *[]string, names, usage string) *Flag {
	f := newFlag(names, usage, "", func(word string) error {
		*to = append(*to, word)
		return nil
	})
	f.isList = true
	return f
}

// Bool returns a flag that is on if it is given.
func Bool(to *bool, names, usage string) *Flag {
	f := newFlag(names, usage, "", func(word string) (err error) {
		if *to, err = strconv.ParseBool(word); err != nil {
			err = errors.New("parse error")
		}
		return err
	})
	f.isBool = true
	return f
}

// OrWord lets a Bool also take a word after "=".
func (f *Flag) OrWord(word string, to *bool) *Flag {
	set := f.set
	f.word, f.choices, f.set = word, []string{word}, func(value string) error {
		if *to = value == word; *to {
			return nil
		}
		return set(value)
	}
	return f
}

// OrTime lets a Bool also take a duration of more than 0 after "=".
func (f *Flag) OrTime(to *time.Duration) *Flag {
	set := f.set
	f.word, f.set = "TIME", func(value string) (err error) {
		if value == "true" || value == "false" {
			return set(value)
		}
		if *to, err = text.ParseDuration(value); err == nil && *to == 0 {
			err = errors.New("write a duration of more than 0")
		}
		return errors.Join(err, set("true"))
	}
	return f
}

// Int returns a flag with a number.
func Int(to *int, names, usage string) *Flag {
	preset := ""
	if *to != 0 {
		preset = strconv.Itoa(*to)
	}
	return newFlag(names, usage, preset, func(word string) error {
		n, err := strconv.Atoi(word)
		if err != nil {
			return errors.New("parse error")
		}
		*to = n
		return nil
	})
}

// Duration returns a flag with a duration of more than 0.
func Duration(to *time.Duration, names, usage string) *Flag {
	preset := ""
	if *to != 0 {
		preset = text.FormatDuration(*to)
	}
	f := newFlag(names, usage, preset, func(word string) error {
		*to, _ = text.ParseDuration(word) // check reports the error
		return nil
	})
	f.check = func(f *Flag) error {
		switch d, err := text.ParseDuration(f.String()); {
		case !f.given:
			return nil
		case err != nil:
			return WrongFlag(f.names[0], " %w", err)
		case d == 0 && !f.orZero:
			return WrongFlag(f.names[0], " %q: write a duration of more than 0", f.String())
		}
		return nil
	}
	return f
}

// OrZero lets a duration be 0.
func (f *Flag) OrZero() *Flag { f.orZero = true; return f }

// AtLeast refuses smaller numbers.
func (f *Flag) AtLeast(least int) *Flag {
	f.check = func(f *Flag) error {
		if n, _ := strconv.Atoi(f.String()); f.given && n < least {
			return WrongFlag(f.names[0], " %d: write %d or more", n, least)
		}
		return nil
	}
	return f
}

// OneOf limits the values to some words; a list takes one or more.
func (f *Flag) OneOf(choices ...string) *Flag {
	f.choices, f.many = choices, f.isList
	f.check = (*Flag).checkChoices
	return f
}

// Offers sets the words that completion offers.
func (f *Flag) Offers(choices ...string) *Flag {
	f.choices = choices
	return f
}

func (f *Flag) checkChoices() error {
	if f.isList && !f.given {
		return UsageError("missing --%s: write one or more of %s", f.names[0], strings.Join(f.choices, " "))
	}
	for _, word := range f.words {
		noWord := word == "" && f.preset == "" && !f.isList
		if !noWord && !slices.Contains(f.choices, word) {
			return WrongFlag(f.names[0], " %q: write %s", word, alternatives(f.choices))
		}
	}
	return nil
}

func alternatives(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// Many makes all words up to the next flag values, as in 1.4.3.
func (f *Flag) Many() *Flag { f.many = true; return f }

// DefaultText is what help prints as the default.
func (f *Flag) DefaultText(text string) *Flag { f.defaultText = text; return f }

// Hide leaves the flag to config.yaml: help doesn't list it.
func (f *Flag) Hide() *Flag { f.hidden = true; return f }

// Config sets how config.yaml treats the flag.
func (f *Flag) Config(keys InConfig) *Flag { f.keys = keys; return f }

// Unless names the environment variable that takes precedence over config.yaml.
func (f *Flag) Unless(variable string) *Flag { f.unless = variable; return f }

// Set implements flag.Value.
func (f *Flag) Set(word string) error {
	f.words, f.given = append(f.words, word), true
	return f.set(word)
}

// String implements flag.Value and cli.Flag.
func (f *Flag) String() string {
	if len(f.words) > 0 {
		return f.words[len(f.words)-1]
	}
	return f.preset
}

// IsBoolFlag makes package flag accept the flag without a value.
func (f *Flag) IsBoolFlag() bool { return f.isBool }

// Apply implements cli.Flag.
func (f *Flag) Apply(set *flag.FlagSet) error {
	for _, name := range f.names {
		set.Var(f, name, f.usage)
	}
	return nil
}

// Names implements cli.Flag. It leaves out aliases, so that a flag may be given by two of its names.
func (f *Flag) Names() []string { return f.names[:1] }

// IsSet implements cli.Flag.
func (f *Flag) IsSet() bool { return f.given }

// IsVisible implements cli.VisibleFlag.
func (f *Flag) IsVisible() bool { return !f.hidden }

// The flags of package cli, as help and completion show them.
var (
	helpFlag    = Bool(new(bool), "help,h", "show help")
	versionFlag = Bool(new(bool), "version,v", "print the version")
)

// placeholder is the word in backquotes.
func (f *Flag) placeholder() string {
	if parts := strings.SplitN(f.usage, "`", 3); len(parts) == 3 {
		return parts[1]
	}
	return "VALUE"
}

// FlagOf is a command's flag by its name; nil for none.
func FlagOf(command *cli.Command, name string) *Flag { return flagNamed(own(command.Flags), name) }

func flagNamed(flags []*Flag, name string) *Flag {
	for _, f := range flags {
		if slices.Contains(f.names, name) {
			return f
		}
	}
	return nil
}

func own(flags []cli.Flag) (own []*Flag) {
	for _, flag := range flags {
		if f, ours := flag.(*Flag); ours {
			own = append(own, f)
		}
	}
	return own
}

// Takes reports whether a command has a flag.
func Takes(command *cli.Command, flag string) bool { return FlagOf(command, flag) != nil }

func checkValues(c *cli.Context) error {
	for _, f := range own(c.Command.Flags) {
		if f.check != nil {
			if err := f.check(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkPlaces refuses arguments of a command without ArgsUsage, and flags of parent commands that the command doesn't
// have: it would ignore them.
func checkPlaces(c *cli.Context) error {
	if c.Args().Present() && c.Command.ArgsUsage == "" {
		if len(c.Command.Subcommands) > 0 {
			return RefuseUnknown(c)
		}
		return UsageError("unexpected argument %q; see %s --help", c.Args().First(), c.Command.HelpName)
	}
	for _, above := range c.Lineage()[1:] {
		if above.Command == nil {
			continue
		}
		for _, flag := range above.Command.Flags {
			if name := flag.Names()[0]; flag.IsSet() && !Takes(c.Command, name) {
				return UsageError("%s has no flag --%s; see %s --help", c.Command.HelpName, name, c.Command.HelpName)
			}
		}
	}
	return nil
}

// FormatFlag chooses a format; the first one is the default.
func FormatFlag(to *string, formats ...string) *Flag {
	*to = formats[0]
	return String(to, "format", fmt.Sprintf("`FORMAT`: %s", alternatives(formats))).OneOf(formats...).Config(Output)
}

// OutputFlags are the flags of commands that print a table.
func OutputFlags(o *render.Output, formats ...string) []cli.Flag {
	return []cli.Flag{
		FormatFlag(&o.Format, append([]string{"tui", "csv", "json"}, formats...)...),
		Bool(&o.NoHeader, "no-header", "leave out the names of the columns").Config(Output),
	}
}

// TimestampFlag is for tables with times.
func TimestampFlag(o *render.Output) cli.Flag {
	return Bool(&o.Timestamp, "timestamp", "print times instead of ages").Config(Output)
}

// Time parses a time, which is local unless it has a zone; an empty text is now.
func (p *Program) Time(text string) (time.Time, error) {
	if text == "" {
		return p.Now(), nil
	}
	for _, layout := range []string{
		time.RFC3339, "2006-01-02T15:04:05", time.DateTime, "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly,
	} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, UsageError("%q is not a time: write it as 2026-11-20T22:00, or 2026-11-20", text)
}

// Period parses --since and --until: a time, or an age such as 2h or 7d; the zero time if empty.
func (p *Program) Period(since, until string) (from, to time.Time, err error) {
	if from, err = p.ago("since", since); err == nil {
		to, err = p.ago("until", until)
	}
	if err == nil && !to.IsZero() && !to.After(from) {
		err = WrongFlag("since", " %s is not before --until %s", from.Format(time.DateTime), to.Format(time.DateTime))
	}
	return from, to, err
}

func (p *Program) ago(flag, written string) (time.Time, error) {
	if written == "" {
		return time.Time{}, nil
	}
	if ago, err := text.ParseDuration(written); err == nil {
		return p.Now().Add(-ago), nil
	}
	t, err := p.Time(written)
	if err != nil {
		return t, WrongFlag(flag, " %q: write how long ago, as 2h or 7d, or a time as 2026-11-20T22:00", written)
	}
	return t, nil
}
