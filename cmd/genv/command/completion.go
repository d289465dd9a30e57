package command

import (
	"context"
	"embed"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/snapshot/text"
)

//go:embed genv.bash genv.zsh
var scripts embed.FS

// completionCommand is `genv completion`, which prints the script for a shell.
func completionCommand(p Program) *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print the script that completes command lines of genv in bash or zsh", ArgsUsage: "bash|zsh",
		Action: func(c *cli.Context) error {
			script, err := scripts.ReadFile("genv." + c.Args().First())
			if err != nil || c.NArg() != 1 {
				return UsageError("missing shell: write `genv completion bash` or `genv completion zsh`")
			}
			_, err = p.Out.Write(script)
			return err
		},
	}
}

// limit is how long a completion may take: the user is waiting for it.
const limit = time.Second

// completeCommand is the hidden command that the scripts run. root is the whole program. LINE begins
// with genv and ends at the cursor.
func completeCommand(p Program, root func() *cli.App) *cli.Command {
	return &cli.Command{
		Name: "__complete", Usage: "print completions for a shell's script", ArgsUsage: "bash|zsh LINE WORDBREAKS",
		Hidden: true, SkipFlagParsing: true,
		Action: func(c *cli.Context) error {
			if c.NArg() != 3 {
				return UsageError("missing words: the scripts of `genv completion` write them")
			}
			ctx, cancel := context.WithTimeout(c.Context, limit)
			defer cancel()
			e := &engine{root: root, sources: newSources(ctx, p)}
			answered := make(chan string, 1)
			go func() { answered <- e.reply(c.Args().Get(0), c.Args().Get(1), c.Args().Get(2)) }()
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

// shellAction is what the shell is to do.
type shellAction int

const (
	offer   shellAction = iota // the candidates
	files                      // complete the rest of the word as the path of a file
	folders                    // or of a folder
	program                    // complete as a command line, from a word on
)

// answer is how a line may continue.
type answer struct {
	do         shellAction
	program    int // the index of the word
	skip       int // how many bytes of the word stay before the candidate
	candidates []candidate
	suffix     string // what follows a candidate that was accepted: space, nospace, or list
}

// candidate is a value in place of the rest of the word. text explains it.
type candidate struct{ value, text string }

// What follows a candidate.
const (
	space   = "space"
	noSpace = "nospace" // the word is not complete
	list    = "list"    // a space, or a comma and another value
)

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
		return answer{do: files, skip: skip}
	case "DIR":
		return answer{do: folders, skip: skip}
	case "HOSTS":
		return hostList(s, current, skip)
	case "HOST":
		return listed(current, skip, func(string) []candidate { return s.hosts() })
	case "INDEX":
		return listed(current, skip, func(string) []candidate { return s.noted(kind) })
	case "USER=N":
		a := listed(current, skip, func(string) []candidate { return prefixed("", s.users(), "=") })
		a.suffix = noSpace
		return a
	case "USER":
		return matching(s.users(), current, skip)
	case "KEY=VALUE":
		return matching(s.labels(), current, skip)
	case "id", "eid", "kernel-id":
		return matching(s.noted(kind), current, skip)
	}
	if strings.Contains(kind, "|") {
		return matching(valuesOf(strings.Split(kind, "|")), current, skip)
	}
	return answer{}
}

// hostList completes the value of -H.
func hostList(s *sources, current string, skip int) answer {
	s.addFiles(current[skip:])
	a := listed(current, skip, s.selectable)
	if item := current[a.skip:]; strings.Contains(item, "/") { // only a file has one
		return inFolder(current, a.skip, s.inventoryFiles(item))
	}
	return a
}

// inFolder completes a path, which begins after skip bytes of the word, with names in its folder.
func inFolder(current string, skip int, names []candidate) answer {
	return matching(names, current, skip+strings.LastIndexByte(current[skip:], '/')+1)
}

// listed completes the last item of a list with commas; those within brackets belong to
// an item. Items that are there already are not offered again.
func listed(current string, skip int, candidates func(item string) []candidate) answer {
	items := text.SplitHosts(current[skip:])
	last := items[len(items)-1]
	if !strings.HasSuffix(current, last) { // a space follows it
		return answer{skip: len(current)}
	}
	left := slices.DeleteFunc(candidates(last), func(c candidate) bool { return slices.Contains(items[:len(items)-1], c.value) })
	a := matching(left, current, len(current)-len(last))
	if a.suffix == space {
		a.suffix = list
	}
	return a
}

// most is how many candidates are offered: people don't read more than that.
const most = 2000

// matching are the candidates that begin as the word does after skip bytes.
func matching(candidates []candidate, word string, skip int) answer {
	candidates = slices.DeleteFunc(slices.Clone(candidates), func(c candidate) bool {
		return !strings.HasPrefix(c.value, word[skip:]) || text.Printable(c.value) != c.value
	})
	a := answer{skip: skip, candidates: candidates[:min(len(candidates), most)], suffix: space}
	if slices.ContainsFunc(a.candidates, isFolder) {
		a.suffix = noSpace
	}
	return a
}

func isFolder(c candidate) bool { return strings.HasSuffix(c.value, "/") }

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
