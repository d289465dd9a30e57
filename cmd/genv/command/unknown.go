package command

import (
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/docs"
	"github.com/seed-3119e985/genv/snapshot/text"
)

func unknownError(kind, shown, near, parent string) error {
	if near != "" {
		return UsageError("unknown %s %s (did you mean %s?)", kind, shown, near)
	}
	return UsageError("unknown %s %s; see %s --help", kind, shown, parent)
}

// FlagError explains flags that package flag could not parse.
func FlagError(c *cli.Context, err error, _ bool) error {
	const undefined = "flag provided but not defined: -"
	name, unknown := strings.CutPrefix(err.Error(), undefined)
	if !unknown { // package flag prints one dash
		said := err.Error()
		at := strings.LastIndex(said, " -") + 1
		name, _, _ := strings.Cut(strings.TrimPrefix(said[at:], "-"), ":")
		if !strings.HasPrefix(said, "bad flag syntax: ") { // it has the dashes as typed
			said = said[:at] + strings.Replace(said[at:], "-"+name, dashed(name), 1)
		}
		return UsageError("%s; see %s --help", said, c.Command.HelpName)
	}
	near := nearestFlag(name, c.Command.Flags)
	if near != "" {
		near = "--" + near
	}
	return unknownError("flag", dashed(name), near, c.Command.HelpName)
}

func nearestFlag(name string, flags []cli.Flag) string {
	if len(name) < 3 {
		return ""
	}
	var names []string
	for _, flag := range flags {
		if f, ours := flag.(*Flag); ours {
			names = append(names, f.names...)
		} else {
			names = append(names, flag.Names()...)
		}
	}
	names = slices.DeleteFunc(names, func(n string) bool { return len(n) == 1 })
	if near := text.Nearest(name, names); near != "" {
		return near
	}
	part := ""
	for _, n := range names {
		isPart := strings.Contains(name, n) || strings.Contains(n, name)
		if len(n) > 3 && len(name) > 3 && isPart && len(n) > len(part) {
			part = n
		}
	}
	return part
}

const connectionTopic = "connection"

func helpCommand(commands []*cli.Command) *cli.Command {
	topic := &cli.Command{
		Name: connectionTopic, Usage: "the flags of `genv remote` about the connections to hosts",
		Action: cli.ShowSubcommandHelp,
	}
	for _, cmd := range commands {
		for _, flag := range own(cmd.Flags) {
			if flag.keys&connection != 0 {
				topic.Flags = append(topic.Flags, flag)
			}
		}
	}
	agents := &cli.Command{
		Name: "agents", Usage: "how a program that works for a person uses GPUs, such as a coding agent",
		Action: func(c *cli.Context) error {
			_, err := io.WriteString(c.App.Writer, docs.Agents)
			return err
		},
	}
	return &cli.Command{
		Name: "help", Usage: "print the help of a command", ArgsUsage: "[COMMAND…]",
		Subcommands: []*cli.Command{topic, agents},
		Action: func(c *cli.Context) error {
			words, commands, parent := c.Args().Slice(), c.App.Commands, "genv"
			for _, word := range words {
				cmd := commandNamed(commands, word)
				if cmd == nil {
					return unknown(word, commands, parent)
				}
				parent += " " + word
				commands = cmd.Subcommands
			}
			return c.App.RunContext(c.Context, append(append([]string{c.App.Name}, words...), "--help"))
		},
	}
}

func commandNamed(commands []*cli.Command, name string) *cli.Command {
	if i := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(name) }); i >= 0 {
		return commands[i]
	}
	return nil
}

func unknown(word string, commands []*cli.Command, parent string) error {
	var names []string
	for _, cmd := range visible(commands) {
		names = append(names, cmd.Name)
	}
	near := ""
	switch word {
	case "help": // not "hold", which stops enforcement
	case "wait", "queue":
		near = "genv run --wait"
	case "book", "reservations":
		near = "genv reserve"
	default:
		if near = text.Nearest(word, names); near != "" {
			near = strconv.Quote(near)
		}
	}
	return unknownError("command", strconv.Quote(word), near, parent)
}

// RefuseUnknown is the action of commands that have only subcommands.
func RefuseUnknown(c *cli.Context) error {
	word := c.Args().First()
	if word == "" {
		return cli.ShowSubcommandHelp(c)
	}
	return unknown(word, c.Command.Subcommands, c.Command.HelpName)
}
