package command

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"
)

// manCommand is `genv man`, which writes all man pages. root is the whole program.
func manCommand(root func() *cli.App) *cli.Command {
	return &cli.Command{
		Name: "man", Usage: "write the man pages of all commands into a folder", ArgsUsage: "DIR", Hidden: true,
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return UsageError("missing folder: write `genv man DIR`")
			}
			app := root()
			return writeAll(c.Args().First(), Root(app), app.Name, app.Version)
		},
	}
}

// writeAll writes a man page for a command and for each visible one below it, as NAME.1 into an existing folder.
func writeAll(dir string, cmd *cli.Command, name, version string) error {
	page := PageOf(cmd, name)
	path := filepath.Join(dir, page.FileName()+".1")
	if err := os.WriteFile(path, []byte(page.Man(version)), 0o644); err != nil {
		return fmt.Errorf("write man page: %w", err)
	}
	for _, sub := range visible(cmd.Subcommands) {
		if err := writeAll(dir, sub, name+" "+sub.Name, version); err != nil {
			return err
		}
	}
	return nil
}

// FileName is the name of the page, which is that of its file without the section.
func (p *HelpPage) FileName() string { return strings.ReplaceAll(p.Name, " ", "-") }

// manWidth is how wide the text of a man page is: so much of 80 columns that man(7) leaves.
const manWidth = 70 + margin

// Man is the page in the language of man(7): the text of --help, with exit codes, variables, files and other pages.
func (p *HelpPage) Man(version string) string {
	h := helpText{width: manWidth}
	p.write(&h)
	h.columns("EXIT STATUS", p.exitStatus())
	h.columns("ENVIRONMENT", p.factsOf("ENVIRONMENT"))
	h.columns("FILES", p.factsOf("FILES"))
	if pages := p.seeAlso(); len(pages) > 0 {
		h.section("SEE ALSO", strings.Join(pages, ", "))
	}
	var m strings.Builder
	fmt.Fprintf(&m, ".TH \"%s\" 1 \"\" \"%s\" \"genv manual\"\n.nh\n.ad l\n",
		escape(strings.ToUpper(p.FileName())), escape("genv "+version))
	usage := strings.ReplaceAll(p.Usage, "`", "") // as whatis(1) reads it
	fmt.Fprintf(&m, ".SH NAME\n%s \\- %s\n", escape(p.FileName()), escape(usage))
	blank := ""
	for line := range strings.Lines(h.String()) {
		switch title, isTitle := strings.CutSuffix(line, ":\n"); {
		case line == "\n": // which man(7) puts between sections itself
			blank = line
			continue
		case isTitle && line[0] != ' ':
			fmt.Fprintf(&m, ".fi\n.SH \"%s\"\n.nf\n", escape(strings.Replace(title, "USAGE", "SYNOPSIS", 1)))
		default: // laid out already
			line = strings.TrimPrefix(strings.TrimSuffix(line, "\n"), strings.Repeat(" ", margin))
			m.WriteString(blank + escape(line) + "\n")
		}
		blank = ""
	}
	return m.String()
}

func (p *HelpPage) seeAlso() (pages []string) {
	if end := strings.LastIndexByte(p.Name, ' '); end > 0 {
		pages = append(pages, p.Name[:end])
	}
	for _, section := range p.Commands {
		for _, c := range section.Rows {
			pages = append(pages, p.Name+" "+c.Name)
		}
	}
	for i, page := range pages {
		pages[i] = strings.ReplaceAll(page, " ", "-") + "(1)"
	}
	return pages
}

// escape writes a line so that groff prints it as it is, also as the quoted argument of a macro. Otherwise it prints
// some characters as others, such as a hyphen for -. What isn't ASCII is written by its number.
func escape(text string) string {
	var b strings.Builder
	for i, r := range text {
		special := strings.IndexRune("\\'`\"^~", r)
		switch {
		case special >= 0:
			b.WriteString(`\(` + "rsaqgadqhati"[2*special:2*special+2])
		case r == '-':
			b.WriteString(`\-`)
		case r == '…':
			b.WriteString("...")
		case i == 0 && r == '.': // would begin a request
			b.WriteString(`\&.`)
		case r == '\n' || r == '\t':
			b.WriteByte(' ')
		case r < ' ' || r == 0x7f: // not a character of a text
		case r > '~':
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
