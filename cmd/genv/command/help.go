package command

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/render"
)

// The layout of --help.
const (
	margin     = 3
	gap        = 2
	textIndent = 10  // of a text that has no room next to its name
	leastRoom  = 30  // for a text next to its name
	mostWidth  = 120 // longer lines are hard to read
)

// printHelp is a cli.HelpPrinter. As with package cli, a closed pipe is the reader's wish.
func printHelp(w io.Writer, _ string, of any) {
	switch of := of.(type) {
	case *cli.App:
		page := PageOf(Root(of), of.Name)
		_ = WriteHelp(w, &page, render.Width(w))
	case *cli.Command:
		page := PageOf(of, of.HelpName)
		_ = WriteHelp(w, &page, render.Width(w))
	}
}

// WriteHelp writes a page as --help prints it: wrapped to the width of the terminal, or not at
// all if that is 0.
func WriteHelp(w io.Writer, p *Page, width int) error {
	h := helpText{width: min(width, mostWidth)}
	h.section("NAME", p.Name+" - "+p.Usage)
	h.section("USAGE", strings.TrimSpace(p.Name+" "+p.Synopsis))
	if len(p.Description) > 0 {
		h.section("DESCRIPTION", strings.Split(strings.Join(p.Description, "\n\n"), "\n")...)
	}
	h.columns("COMMANDS", p.Commands)
	var options []Entry
	for i := range p.Options {
		options = append(options, p.Options[i].entry())
	}
	h.columns("OPTIONS", options)
	h.columns("EXAMPLES", p.Examples)
	_, err := io.WriteString(w, strings.TrimPrefix(h.String(), "\n"))
	return err
}

// helpText is the text that is being written.
type helpText struct {
	strings.Builder
	width int // 0 if it is not known
}

func (h *helpText) section(title string, lines ...string) {
	h.WriteString("\n" + title + ":\n")
	for _, line := range lines {
		if !strings.HasPrefix(line, " ") { // else it is laid out already
			line = render.Wrap(line, margin, h.width)
		}
		h.line(line)
	}
}

func (h *helpText) line(line string) {
	h.WriteString(strings.TrimRight(strings.Repeat(" ", margin)+line, " ") + "\n")
}

// columns writes rows of two columns. Where the second has too little room, each text is on
// lines of its own.
func (h *helpText) columns(title string, rows []Entry) {
	if len(rows) == 0 {
		return
	}
	names, texts := 0, 0
	for _, row := range rows {
		names, texts = max(names, utf8.RuneCountInString(row.Name)), max(texts, utf8.RuneCountInString(row.Text))
	}
	indent := margin + names + gap
	stacked := h.width > 0 && indent+min(texts, leastRoom) > h.width
	h.section(title)
	for _, row := range rows {
		if stacked {
			h.line(row.Name)
			h.line(strings.Repeat(" ", textIndent-margin) + render.Wrap(row.Text, textIndent, h.width))
			continue
		}
		h.line(row.Name + strings.Repeat(" ", names-utf8.RuneCountInString(row.Name)+gap) + render.Wrap(row.Text, indent, h.width))
	}
}

// Page is what is said about a command, by its help and its man page.
type Page struct {
	Name        string // with those of its parents: genv remote enforce
	Usage       string // in one line
	Synopsis    string // what follows the name
	Description []string
	Commands    []Entry
	Options     []Option
	Examples    []Entry
}

// Entry is a word or a command line, with its explanation.
type Entry struct{ Name, Text string }

// Option is a flag of a command.
type Option struct {
	Names   []string // with their dashes
	Value   string   // the placeholder; empty if the flag takes none
	Text    string
	Default string // what it means if it isn't given; empty if that goes without saying
}

// PageOf describes a command by its full name.
func PageOf(cmd *cli.Command, name string) Page {
	p := Page{Name: name, Usage: cmd.Usage}
	p.describe()
	for _, sub := range visible(cmd.Subcommands) {
		p.Commands = append(p.Commands, Entry{sub.Name, sub.Usage})
	}
	flags := cmd.VisibleFlags()
	if !slices.Contains(flags, cli.HelpFlag) {
		flags = append(flags, cli.HelpFlag)
	}
	for _, flag := range flags {
		if f, ok := flag.(cli.DocGenerationFlag); ok {
			p.Options = append(p.Options, optionOf(f))
		}
	}
	what := cmd.ArgsUsage
	if len(p.Commands) > 0 {
		what = "COMMAND"
	}
	if !cmd.SkipFlagParsing {
		what = strings.TrimSpace("[options] " + what)
	}
	p.Synopsis = what
	return p
}

// Root is the program itself as a command.
func Root(app *cli.App) *cli.Command {
	return &cli.Command{Name: app.Name, Usage: app.Usage, Subcommands: app.Commands, Flags: []cli.Flag{cli.VersionFlag}}
}

// visible are the commands that people are told of.
func visible(commands []*cli.Command) []*cli.Command {
	return slices.DeleteFunc(slices.Clone(commands), func(cmd *cli.Command) bool { return cmd.Hidden })
}

func optionOf(flag cli.DocGenerationFlag) Option {
	o := Option{Text: flag.GetUsage(), Default: strings.Trim(flag.GetDefaultText(), `"`)}
	if f, ok := flag.(*cli.BoolFlag); ok {
		o.Default = f.DefaultText // "false" is no help
	}
	for _, name := range flag.Names() {
		o.Names = append(o.Names, "--"[:min(len(name), 2)]+name)
	}
	if flag.TakesValue() {
		o.Value = Placeholder(flag)
		o.Text = strings.Replace(o.Text, "`"+o.Value+"`", o.Value, 1)
	}
	return o
}

// entry is the row of an option in the help.
func (o *Option) entry() Entry {
	e := Entry{strings.TrimSpace(strings.Join(o.Names, ", ") + " " + o.Value), o.Text}
	if o.Default != "" {
		e.Text += fmt.Sprintf(" (default: %s)", o.Default)
	}
	return e
}

// texts are descriptions and examples: a command after ==, its paragraphs, and examples as
// a command line after $ with a line that explains it.
//
//go:embed texts.txt
var texts string

// describe adds the texts about the command.
func (p *Page) describe() {
	_, section, _ := strings.Cut("\n"+texts, "\n== "+p.Name+"\n")
	section, _, _ = strings.Cut(section, "\n== ")
	lines := strings.Split(section, "\n")
	for i, line := range lines {
		example, isExample := strings.CutPrefix(line, "$ ")
		switch {
		case isExample:
			p.Examples = append(p.Examples, Entry{example, lines[i+1]})
		case line != "" && (i == 0 || !strings.HasPrefix(lines[i-1], "$ ")):
			p.Description = append(p.Description, line)
		}
	}
}

// Parts of genv, for which a fact is worth to be mentioned.
const (
	shells  = "activate deactivate attach detach config home status lock run shell"
	local   = "devices envs gpus history why enforce monitor usage doctor"
	fleets  = "remote"
	loops   = "enforce watch"
	general = ""
)

// fact is an entry of the pages of some commands: of those whose second or last word is in
// of. The page of genv itself has all.
type fact struct {
	of string
	Entry
}

func (p *Page) factsOf(list []fact) (entries []Entry) {
	words := strings.Fields(p.Name)
	for _, f := range list {
		of := strings.Fields(f.of)
		if len(words) == 1 || f.of == general || slices.Contains(of, words[1]) || slices.Contains(of, words[len(words)-1]) {
			entries = append(entries, f.Entry)
		}
	}
	return entries
}

// exitStatus are the exit codes; README.md has the same.
func (p *Page) exitStatus() []Entry {
	if p.Name == "genv run" || p.Name == "genv lock" {
		return []Entry{{"0 to 255", "that of the command"}, {"1", "genv failed, and says why; nothing was changed"}}
	}
	return p.factsOf([]fact{
		{general, Entry{"0", "success; with hosts: all of them answered, and did what they were sent"}},
		{general, Entry{"1", "wrong usage or configuration: nothing was done"}},
		{fleets, Entry{"3", "some hosts failed, or the outcome of their reports is unknown; stderr lists them by cause"}},
		{fleets, Entry{"4", "no host answered"}},
		{"enforce", Entry{"5", "safety limits of the policy held back actions of the last cycle, or an operator had put enforcement on hold"}},
		{"enforce", Entry{"6", "the last cycle could not be recorded"}},
		{"enforce", Entry{"7", "most hosts refused, since another controller acts on them: the loop has ended"}},
		{"enforce", Entry{"10", "with --exit-code: a dry run found something to do"}},
	})
}

func variablesOfAll() []fact {
	return []fact{
		{shells + " " + local, Entry{"GENV_TMPDIR", "the folder of the state files (default: /var/tmp/genv)"}},
		{shells, Entry{"GENV_ENVIRONMENT_ID", "the environment of this shell; set by `genv activate`"}},
		{shells, Entry{"GENV_ALLOW_OVER_SUBSCRIPTION", "1 attaches devices even if they are full, as --over-subscribe does"}},
		{shells, Entry{"GENV_BYPASS", "1 lets the nvidia-smi and docker shims run the real programs unchanged"}},
		{"history why enforce usage", Entry{"GENV_AUDIT_LOG", "the record; off for none"}},
		{"enforce usage", Entry{"GENV_ROOT_DIR", "the folder of root's notes and copies (default: /var/lib/genv)"}},
		{"enforce usage", Entry{"GENV_TERMINATE_PROCESSES", "0 spares processes on this host: only attachments are removed"}},
		{loops + " top", Entry{"GENV_SOCKET", "the unix socket of the running controller; off for none"}},
		{fleets + " policy", Entry{"XDG_CONFIG_HOME", "the folder of genv/hosts.yaml (default: ~/.config)"}},
		{loops, Entry{"XDG_STATE_HOME", "the folder of genv/, in which a loop keeps its memory (default: ~/.local/state)"}},
		{fleets, Entry{"SSH_AUTH_SOCK", "the agent with the keys to log in with"}},
		{fleets + " gpus", Entry{"NO_COLOR", "if it is not empty, nothing is coloured"}},
	}
}

func filesOfAll() []fact {
	return []fact{
		{shells + " " + local, Entry{"/var/tmp/genv/envs.json, devices.json", "the environments and devices of this machine"}},
		{"activate config home", Entry{".genv/, ~/.genv/", "saved configuration"}},
		{fleets + " policy", Entry{"~/.config/genv/hosts.yaml, /etc/genv/hosts.yaml", "the inventory, if no other file is named"}},
		{fleets, Entry{"~/.ssh/config, ~/.ssh/known_hosts", "how hosts are reached, and their keys, as for ssh(1)"}},
		{"history why enforce usage", Entry{"/var/log/genv/audit.jsonl", "the record of this machine"}},
		{"enforce usage", Entry{"/var/lib/genv/", "root's notes and copies of the state files"}},
		{"enforce", Entry{"~/.local/state/genv/", "what a loop remembers, unless --state-dir names another folder"}},
		{loops + " top", Entry{"/run/genv-controller/controller.sock", "the socket of a controller that root runs"}},
	}
}
