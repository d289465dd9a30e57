package app

import (
	"context"
	_ "embed"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
)

//go:embed genv.bash
var bashScript string

//go:embed genv.zsh
var zshScript string

// completionCommand is `genv completion`, which prints the script for a shell.
func completionCommand(p command.Program) *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print the script that completes command lines of genv in bash or zsh", ArgsUsage: "bash|zsh",
		Action: func(c *cli.Context) error {
			var script string
			switch c.Args().First() {
			case "bash":
				script = bashScript
			case "zsh":
				script = zshScript
			}
			if script == "" || c.NArg() != 1 {
				return command.UsageError("missing shell: write `genv completion bash` or `genv completion zsh`")
			}
			_, err := io.WriteString(p.Out, script)
			return err
		},
	}
}

// limit is how long a completion may take: the user is waiting for it.
const limit = time.Second

// completeCommand is the hidden command that the scripts run. root is the whole program.
//
//	genv __complete bash LINE WORDBREAKS
//	genv __complete zsh WORD…
//
// LINE ends at the cursor, and so does the last WORD; the first word is genv.
func completeCommand(p command.Program, root func() *cli.App) *cli.Command {
	return &cli.Command{
		Name: "__complete", Usage: "print completions for a shell's script", ArgsUsage: "bash LINE WORDBREAKS | zsh WORD…",
		Hidden: true, SkipFlagParsing: true,
		Action: func(c *cli.Context) error {
			words := c.Args().Slice()
			if len(words) < 3 {
				return command.UsageError("missing words: the scripts of `genv completion` write them")
			}
			ctx, cancel := context.WithTimeout(c.Context, limit)
			defer cancel()
			e := &engine{root: root, sources: newSources(ctx, p)}
			reply := e.bash
			if words[0] == "zsh" {
				reply = e.zsh
			}
			answered := make(chan string, 1)
			go func() { answered <- reply(words[1:]) }()
			select {
			case text := <-answered:
				_, err := io.WriteString(p.Out, text)
				return err
			case <-ctx.Done(): // a file server that hangs
				return nil
			}
		},
	}
}
