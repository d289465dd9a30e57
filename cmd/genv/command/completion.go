package command

import (
	"context"
	"embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/snapshot/text"
)

//go:embed genv.bash genv.fish genv.zsh
var scripts embed.FS

// completionCommand is `genv completion`, which prints the script for a shell.
func completionCommand(p Program) *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print the script that completes command lines of genv in a shell", ArgsUsage: "bash|zsh|fish",
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

// limit is how long a completion may take: the user is waiting for it.
const limit = time.Second

// completeCommand is the hidden command that the scripts run with the words of a line up to the
// cursor, without genv itself: the last one is being written, and may be empty. root is the whole program.
func completeCommand(p Program, root func() *cli.App) *cli.Command {
	return &cli.Command{
		Name: "__complete", Usage: "print completions for a shell's script", ArgsUsage: "WORD…",
		Hidden: true, SkipFlagParsing: true,
		Action: func(c *cli.Context) error {
			if c.NArg() == 0 {
				return UsageError("missing words: the scripts of `genv completion` write them")
			}
			ctx, cancel := context.WithTimeout(c.Context, limit)
			defer cancel()
			e := &engine{root: root, sources: newSources(ctx, p)}
			answered := make(chan string, 1)
			go func() {
				last := c.NArg() - 1
				answered <- e.complete(c.Args().Slice()[:last], c.Args().Get(last)).String()
			}()
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

// What a shell is to do.
const (
	offer   = "words"   // offer the candidates
	noSpace = "nospace" // the same; the word is not complete with one
	files   = "files"   // complete the word, or what follows "=" in it, as the path of a file
	folders = "folders" // or of a folder
	program = "program" // complete as a command line, from the word with an index on
)

// answer is how a line may continue.
type answer struct {
	do         string // empty for nothing
	program    int
	candidates []candidate
}

// String is what the scripts read: what to do, and then a line for each candidate, with what
// explains it behind a tab.
func (a answer) String() string {
	var b strings.Builder
	b.WriteString(a.do)
	if a.do == program {
		fmt.Fprintf(&b, " %d", a.program+1) // with genv itself
	}
	b.WriteString("\n")
	for _, c := range a.candidates {
		b.WriteString(c.value + "\t" + text.OneLine(c.text) + "\n")
	}
	return b.String()
}

// candidate is a whole word. text explains it.
type candidate struct{ value, text string }

// engine answers for the commands of a program.
type engine struct {
	root    func() *cli.App
	sources *sources
}

// complete continues the current word, which follows others.
func (e *engine) complete(words []string, current string) answer {
	app := e.root()
	place := PlaceAfter(app, words)
	if n := len(place.Path); n > 0 && place.Path[n-1].Name == "help" {
		topics := commandsOf(place.Commands)
		return matching(append(topics, commandsOf(PlaceAfter(app, place.Arguments).Commands)...), current, 0)
	}
	e.sources.read(place)
	isFlag := strings.HasPrefix(current, "-") && !place.Ended
	switch {
	case place.Program >= 0 && (place.Program < len(words) || !isFlag || len(place.Flags()) == 0):
		return answer{do: program, program: place.Program}
	case place.Value != nil && !(isFlag && len(place.More) > 0):
		return e.value(place, place.Value, current, 0)
	case isFlag:
		if at := strings.IndexByte(current, '='); at > 0 {
			if flag := place.Flag(current[:at]); flag != nil && flag.TakesValue() {
				return e.value(place, flag, current, at+1)
			}
			return answer{}
		}
		return matching(flagsOf(place, current), current, 0)
	}
	return e.argument(place, current)
}

// argument completes a command, or an argument of one: ArgsUsage says what it may be.
func (e *engine) argument(place *Place, current string) answer {
	if len(place.Commands) > 0 {
		return matching(commandsOf(place.Commands), current, 0)
	}
	if len(place.Path) == 0 {
		return answer{}
	}
	kinds := strings.Fields(place.Path[len(place.Path)-1].ArgsUsage)
	switch at := len(place.Arguments); {
	case at < len(kinds):
		return e.ofKind(strings.Trim(kinds[at], "[]…"), current, 0)
	case len(kinds) == 0 && !place.Ended:
		return matching(flagsOf(place, current), current, 0)
	}
	return answer{}
}

// value completes the value of a flag, after skip bytes of the word.
func (e *engine) value(place *Place, flag cli.DocGenerationFlag, current string, skip int) answer {
	if choices := ChoicesOf(flag); choices != nil {
		return matching(valuesOf(choices, place.More...), current, skip)
	}
	kind := Placeholder(flag)
	if kind == "ID" {
		kind = flag.Names()[0] // of an environment, or of a kernel
	}
	return e.ofKind(kind, current, skip)
}

// ofKind completes a value of the kind that its placeholder names.
func (e *engine) ofKind(kind, current string, skip int) answer {
	s := e.sources
	switch kind {
	case "FILE", "PATH":
		return answer{do: files}
	case "DIR":
		return answer{do: folders}
	case "HOSTS":
		return hostList(s, current, skip)
	case "HOST":
		return listed(current, skip, func(string) []candidate { return s.hosts() })
	case "INDEX":
		return listed(current, skip, func(string) []candidate { return s.noted(kind) })
	case "USER=N":
		a := listed(current, skip, func(string) []candidate { return prefixed("", s.users(), "=") })
		a.do = noSpace
		return a
	case "USER":
		return matching(s.users(), current, skip)
	case "id", "eid", "kernel-id":
		return matching(s.noted(kind), current, skip)
	}
	if strings.Contains(kind, "|") {
		return matching(valuesOf(strings.Split(kind, "|")), current, skip)
	}
	return answer{}
}

// hostList completes the value of -H: what no host begins with may be a file.
func hostList(s *sources, current string, skip int) answer {
	s.addFiles(current[skip:])
	if a := listed(current, skip, s.selectable); len(a.candidates) > 0 {
		return a
	}
	return answer{do: files}
}

// listed completes the last item of a list with commas; those within brackets belong to
// an item. Items that are there already are not offered again.
func listed(current string, skip int, candidates func(item string) []candidate) answer {
	items := text.SplitHosts(current[skip:])
	last := items[len(items)-1]
	if !strings.HasSuffix(current, last) { // a space follows it
		return answer{}
	}
	left := slices.DeleteFunc(candidates(last), func(c candidate) bool { return slices.Contains(items[:len(items)-1], c.value) })
	return matching(left, current, len(current)-len(last))
}

// most is how many candidates are offered: people don't read more than that.
const most = 2000

// matching are the words with candidates in place of what follows skip bytes of a word, if that
// begins them. Those that a shell would not read as they are aren't offered: users choose names.
func matching(candidates []candidate, word string, skip int) answer {
	a := answer{do: offer}
	for _, c := range candidates {
		if strings.HasPrefix(c.value, word[skip:]) && isPlain(c.value) && len(a.candidates) < most {
			a.candidates = append(a.candidates, candidate{word[:skip] + c.value, c.text})
		}
	}
	return a
}

// isPlain says whether a word has no character that means something to a shell or a terminal.
func isPlain(value string) bool {
	return text.Printable(value) == value && !strings.ContainsFunc(value, func(r rune) bool {
		return r < utf8.RuneSelf && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune("@%+=:,./_-", r)
	})
}

// valuesOf are values without an explanation, apart from some.
func valuesOf(values []string, without ...string) (candidates []candidate) {
	for _, value := range values {
		if !slices.Contains(without, value) {
			candidates = append(candidates, candidate{value: value})
		}
	}
	return candidates
}

func commandsOf(commands []*cli.Command) (candidates []candidate) {
	for _, cmd := range visible(commands) {
		candidates = append(candidates, candidate{cmd.Name, cmd.Usage})
	}
	return candidates
}

// flagsOf are the names of flags: of each the first that begins as the word does.
func flagsOf(place *Place, word string) (candidates []candidate) {
	for _, flag := range place.Flags() {
		option := optionOf(flag)
		if at := slices.IndexFunc(option.Names, func(name string) bool { return strings.HasPrefix(name, word) }); at >= 0 {
			candidates = append(candidates, candidate{option.Names[at], option.Text})
		}
	}
	return candidates
}
