package command

import "github.com/urfave/cli/v2"

// OneOf is a flag that takes one of some words. Completion offers them.
func OneOf(flag *cli.StringFlag, choices []string) cli.Flag { return &choiceFlag{flag, choices} }

// SomeOf is a flag that takes several of some words.
func SomeOf(flag *cli.StringSliceFlag, choices []string) cli.Flag {
	return &choicesFlag{flag, choices}
}

type choiceFlag struct {
	*cli.StringFlag
	choices []string
}

type choicesFlag struct {
	*cli.StringSliceFlag
	choices []string
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
