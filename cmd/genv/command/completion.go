package command

import (
	"embed"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/snapshot/text"
)

//go:embed genv.bash genv.fish genv.zsh
var scripts embed.FS

func completionCommand(p Program) *cli.Command {
	return &cli.Command{
		Name: "completion", ArgsUsage: "bash|zsh|fish",
		Usage: "print the script that completes command lines of genv in a shell",
		Action: func(c *cli.Context) error {
			script, err := scripts.ReadFile("genv." + c.Args().First())
			if err != nil || c.NArg() != 1 {
				return UsageError("missing shell: write `genv completion bash`, zsh or fish")
			}
			_, err = p.Out.Write(script)
			return err
		},
	}
}

// completeCommand is the hidden command that the scripts run with the words of a line up to the cursor, without genv
// itself: the last one is being written, and may be empty. root is the whole program.
func completeCommand(p Program, root func() *cli.App) *cli.Command {
	return &cli.Command{
		Name: "__complete", Usage: "print completions for a shell's script", ArgsUsage: "WORD…",
		Hidden: true, SkipFlagParsing: true,
		Action: func(c *cli.Context) error {
			last := c.NArg() - 1
			if last < 0 {
				return UsageError("missing words: the scripts of `genv completion` write them")
			}
			_, err := io.WriteString(p.Out, complete(root(), c.Args().Slice()[:last], c.Args().Get(last)).String())
			return err
		},
	}
}

// What a shell is to do.
const (
	offer   = "words"   // offer the candidates
	files   = "files"   // complete the word, or what follows "=" in it, as the path of a file
	folders = "folders" // or of a folder
	program = "program" // complete as a command line, from the word with an index on
)

// answer is how a line may continue.
type answer struct {
	do         string // empty for nothing
	program    int
	candidates []Entry
}

// String is what the scripts read: what to do, and then a line for each candidate, with what explains it behind a tab.
func (a answer) String() string {
	var b strings.Builder
	b.WriteString(a.do)
	if a.do == program {
		fmt.Fprintf(&b, " %d", a.program+1) // with genv itself
	}
	b.WriteString("\n")
	for _, c := range a.candidates {
		b.WriteString(c.Name + "\t" + text.OneLine(c.Text) + "\n")
	}
	return b.String()
}

// complete continues the current word, which follows others. Values are offered where they are the same on every
// machine.
func complete(app *cli.App, words []string, current string) answer {
	p := placeAfter(app, words)
	if n := len(p.path); n > 0 && p.path[n-1].Name == "help" {
		topics := commandsOf(p.commands)
		return matching(append(topics, commandsOf(placeAfter(app, p.arguments).commands)...), current, 0)
	}
	isFlag := strings.HasPrefix(current, "-") && !p.ended
	switch {
	case p.program >= 0 && (p.program < len(words) || !isFlag || len(p.offered()) == 0):
		return answer{do: program, program: p.program}
	case p.value != nil && !(isFlag && len(p.more) > 0):
		return p.valueOf(p.value, current, 0)
	case isFlag:
		if at := strings.IndexByte(current, '='); at > 0 {
			flag := p.flagOf(current[:at])
			if flag != nil && flag.TakesValue() {
				return p.valueOf(flag, current, at+1)
			}
			if f, ours := flag.(*Flag); ours && f.word != "" {
				return matching(valuesOf(f.choices), current, at+1)
			}
			return answer{}
		}
		return matching(p.flagNames(current), current, 0)
	case len(p.commands) > 0:
		return matching(commandsOf(p.commands), current, 0)
	case len(p.path) == 0:
		return answer{}
	}
	return p.argument(current)
}

// argument completes an argument of the last command: ArgsUsage says what it may be.
func (p *place) argument(current string) answer {
	kinds := strings.Fields(p.command.ArgsUsage)
	switch at := len(p.arguments); {
	case at < len(kinds):
		return ofKind(strings.Trim(kinds[at], "[]…"), current, 0)
	case len(kinds) == 0 && !p.ended:
		return matching(p.flagNames(current), current, 0)
	}
	return answer{}
}

// valueOf completes the value of a flag, after skip bytes of the word.
func (p *place) valueOf(flag cli.DocGenerationFlag, current string, skip int) answer {
	if f, ours := flag.(*Flag); ours && f.choices != nil {
		return matching(valuesOf(f.choices, p.more...), current, skip)
	}
	return ofKind(Placeholder(flag), current, skip)
}

// ofKind completes a value of the kind that its placeholder names.
func ofKind(kind, current string, skip int) answer {
	switch {
	case kind == "FILE", kind == "PATH", kind == "HOSTS": // which may be a hosts.yaml
		return answer{do: files}
	case kind == "DIR", kind == "FOLDER":
		return answer{do: folders}
	case strings.Contains(kind, "|"):
		return matching(valuesOf(strings.Split(kind, "|")), current, skip)
	}
	return answer{}
}

// matching are the words with candidates in place of what follows skip bytes of a word, if that begins them.
func matching(candidates []Entry, word string, skip int) answer {
	a := answer{do: offer}
	for _, c := range candidates {
		if strings.HasPrefix(c.Name, word[skip:]) {
			a.candidates = append(a.candidates, Entry{word[:skip] + c.Name, c.Text})
		}
	}
	return a
}

// valuesOf are values without an explanation, apart from some.
func valuesOf(values []string, without ...string) (candidates []Entry) {
	for _, value := range values {
		if !slices.Contains(without, value) {
			candidates = append(candidates, Entry{Name: value})
		}
	}
	return candidates
}

func commandsOf(commands []*cli.Command) (candidates []Entry) {
	for _, cmd := range visible(commands) {
		candidates = append(candidates, Entry{cmd.Name, cmd.Usage})
	}
	return candidates
}

// flagNames are the names of the flags that may follow: of each the first that begins as the word does.
func (p *place) flagNames(word string) (candidates []Entry) {
	for _, flag := range p.offered() {
		option := optionOf(flag)
		begins := func(name string) bool { return strings.HasPrefix(name, word) }
		if at := slices.IndexFunc(option.Names, begins); at >= 0 {
			candidates = append(candidates, Entry{option.Names[at], option.Text})
		}
	}
	return candidates
}
