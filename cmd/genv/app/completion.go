package app

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// action is what the shell is to do.
type action int

const (
	offer   action = iota // the candidates
	files                 // complete the rest of the word as the path of a file
	folders               // or of a folder
	program               // complete as a command line, from a word on
)

// answer is how a line may continue.
type answer struct {
	do         action
	program    int // the index of the word
	skip       int // how many bytes of the word stand before the candidate
	candidates []candidate
	suffix     suffix
}

// candidate is a value in place of the rest of the word. text explains it.
type candidate struct{ value, text string }

// suffix is what follows a candidate that was accepted.
type suffix int

const (
	space suffix = iota
	none         // the word is not complete
	list         // a space, or a comma and another value
)

// engine answers for the commands of a program.
type engine struct {
	root    func() *cli.App
	sources *sources
}

// complete continues the current word, which follows others.
func (e *engine) complete(words []string, current string) answer {
	app := e.root()
	place := command.PlaceAfter(app, words)
	if n := len(place.Path); n > 0 && place.Path[n-1].Name == "help" {
		return matching(commandsOf(command.PlaceAfter(app, place.Arguments).Commands), current)
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
		return matching(flagsOf(place, current), current)
	}
	return e.argument(place, current)
}

// argument completes a command, or an argument of one: ArgsUsage says what it may be.
func (e *engine) argument(place *command.Place, current string) answer {
	if len(place.Commands) > 0 {
		return matching(commandsOf(place.Commands), current)
	}
	if len(place.Path) == 0 {
		return answer{}
	}
	kinds := strings.Fields(place.Path[len(place.Path)-1].ArgsUsage)
	switch at := len(place.Arguments); {
	case at < len(kinds):
		return e.ofKind(strings.Trim(kinds[at], "[]…"), current, 0)
	case len(kinds) == 0 && !place.Ended:
		return matching(flagsOf(place, current), current)
	}
	return answer{}
}

// value completes the value of a flag, after skip bytes of the word.
func (e *engine) value(place *command.Place, flag cli.DocGenerationFlag, current string, skip int) answer {
	if choices := command.ChoicesOf(flag); choices != nil {
		var candidates []candidate
		for _, choice := range choices {
			if !slices.Contains(place.More, choice) {
				candidates = append(candidates, candidate{value: choice})
			}
		}
		return single(current, skip, candidates)
	}
	kind := command.Placeholder(flag)
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
	case "USER":
		return single(current, skip, s.users())
	case "USER=N":
		users := s.users()
		for i := range users {
			users[i].value += "="
		}
		a := listed(current, skip, func(string) []candidate { return users })
		a.suffix = none
		return a
	case "KEY=VALUE":
		return single(current, skip, s.labels())
	case "id", "eid":
		return single(current, skip, s.environments())
	case "kernel-id":
		return single(current, skip, s.kernels())
	case "INDEX":
		return listed(current, skip, func(string) []candidate { return s.devices() })
	}
	if strings.Contains(kind, "|") {
		var candidates []candidate
		for choice := range strings.SplitSeq(kind, "|") {
			candidates = append(candidates, candidate{value: choice})
		}
		return single(current, skip, candidates)
	}
	return answer{}
}

// single completes a word after skip bytes.
func single(current string, skip int, candidates []candidate) answer {
	a := matching(candidates, current[skip:])
	a.skip = skip
	return a
}

// hostList completes the value of -H.
func hostList(s *sources, current string, skip int) answer {
	s.addFiles(current[skip:])
	a := listed(current, skip, s.selectable)
	item := current[a.skip:]
	if strings.Contains(item, "/") { // only a file has one
		a = pathAnswer(current, a.skip, s.inventoryFiles(item))
	}
	if slices.ContainsFunc(a.candidates, isFolder) {
		a.suffix = none
	}
	return a
}

func isFolder(c candidate) bool { return strings.HasSuffix(c.value, "/") }

// pathAnswer completes a path, which begins after skip bytes of the word.
func pathAnswer(current string, skip int, names []candidate) answer {
	a := single(current, skip+strings.LastIndexByte(current[skip:], '/')+1, names)
	if slices.ContainsFunc(a.candidates, isFolder) {
		a.suffix = none
	}
	return a
}

// listed completes the last item of a list with commas; those within brackets belong to
// an item. Items that are there already are not offered again.
func listed(current string, skip int, candidates func(item string) []candidate) answer {
	items := text.SplitHosts(current[skip:])
	items = items[:len(items)-1]
	last := current[skip:]
	for _, item := range items { // what follows their commas, without the spaces
		last = last[strings.Index(last, item)+len(item):]
		last = strings.TrimLeft(last[strings.IndexByte(last, ',')+1:], " ")
	}
	a := single(current, len(current)-len(last), candidates(last))
	a.candidates = slices.DeleteFunc(a.candidates, func(c candidate) bool { return slices.Contains(items, c.value) })
	a.suffix = list
	return a
}

// most is how many candidates are offered: people don't read more than that.
const most = 2000

// matching are the candidates that begin as the word does.
func matching(candidates []candidate, word string) answer {
	candidates = slices.DeleteFunc(slices.Clone(candidates), func(c candidate) bool {
		return !strings.HasPrefix(c.value, word) || text.Printable(c.value) != c.value
	})
	return answer{candidates: candidates[:min(len(candidates), most)]}
}

func commandsOf(commands []*cli.Command) (candidates []candidate) {
	for _, cmd := range visible(commands) {
		candidates = append(candidates, candidate{cmd.Name, cmd.Usage})
	}
	return candidates
}

// flagsOf are the names of flags: of each the first that begins as the word does.
func flagsOf(place *command.Place, word string) (candidates []candidate) {
	for _, flag := range place.Flags() {
		option := optionOf(flag)
		if at := slices.IndexFunc(option.Names, func(name string) bool { return strings.HasPrefix(name, word) }); at >= 0 {
			candidates = append(candidates, candidate{option.Names[at], option.Text})
		}
	}
	return candidates
}
