package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/term"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// screen prints the demo, with colours only on a terminal whose user has not set NO_COLOR (https://no-color.org).
type screen struct {
	out     io.Writer
	colours bool
}

func newScreen(out io.Writer, getenv func(string) string) screen {
	file, ok := out.(*os.File)
	terminal := ok && term.IsTerminal(int(file.Fd()))
	return screen{out: out, colours: terminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"}
}

const (
	bold  = "1"
	dim   = "2"
	red   = "31"
	green = "32"
	cyan  = "36"
)

func (s screen) paint(colour, text string) string {
	if !s.colours {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

func (s screen) title(text string) { fmt.Fprintf(s.out, "\n%s\n", s.paint(bold, text)) }

func (s screen) say(text string) { fmt.Fprint(s.out, text) }

func (s screen) row(name, text string) { s.say(fmt.Sprintf("  %-16s %s\n", name, text)) }

func (s screen) command(line string) { fmt.Fprintf(s.out, "%s\n", s.paint(cyan, "$ "+line)) }

// item prints a line with a green check mark, or with a red cross and what is wrong.
func (s screen) item(text, problem string) {
	if problem == "" {
		fmt.Fprintf(s.out, "%s %s\n", s.paint(green, "✓"), text)
		return
	}
	fmt.Fprintf(s.out, "%s %s   %s\n", s.paint(red, "✗"), text, s.paint(red, problem))
}

// introduce shows the hosts, the processes, and which of them break a rule.
func (s screen) introduce(on *stage) {
	devices := 0
	for _, spec := range hostSpecs {
		devices += spec.devices
	}
	s.title(fmt.Sprintf("%d GPU hosts with %d GPUs, all on this machine", len(hostSpecs), devices))
	fmt.Fprintf(s.out, "The GPUs are simulated. The SSH servers (%s to %s, port %d)\n"+
		"and the processes are real; all of them are yours and end with this demo.\n",
		hostSpecs[0].address, hostSpecs[len(hostSpecs)-1].address, on.fleet.Port)
	if on.fleet.Port != port {
		fmt.Fprintf(s.out, "Another program listens on port %d, so the hosts are on port %d.\n", port, on.fleet.Port)
	}
	fmt.Fprintf(s.out, "\n%s\n", s.paint(dim, fmt.Sprintf("  %-8s %-7s %8s  %-11s %3s %9s", "HOST", "USER", "PID", "PROCESS", "GPU", "MEMORY")))
	for i, spec := range on.specs {
		s.item(fmt.Sprintf("%-8s %-7s %8d  %-11s %3d %9s",
			spec.host, cmp.Or(spec.user, "-"), on.jobs[i].PID, spec.program, spec.device, text.GiB(spec.miB<<20)), spec.violation)
	}
	for _, env := range envSpecs {
		for _, a := range env.attached {
			if a.violation != "" {
				s.item(fmt.Sprintf("%-8s %-7s %8s  %-11s %3d %9s", env.host, env.user, "", "(attached)", a.device, ""), a.violation)
			}
		}
	}
}

// conclude shows the result of the checks.
func (s screen) conclude(differences []string) {
	if len(differences) > 0 {
		s.title("The result is wrong:")
		for _, d := range differences {
			s.item("", d)
		}
		return
	}
	ended, detached := 0, 0
	jobs := slices.Concat(jobSpecs, laterSpecs)
	for _, spec := range jobs {
		if spec.violation != "" {
			ended++
		}
	}
	for _, env := range envSpecs {
		for _, a := range env.attached {
			if a.violation != "" {
				detached++
			}
		}
	}
	s.title("Checked from outside of genv:")
	s.item(fmt.Sprintf("the %d processes that broke a rule have ended, and %d GPUs were detached", ended, detached), "")
	s.item(fmt.Sprintf("the other %d processes and %d shells still run", len(jobs)-ended, len(envSpecs)), "")
	s.item("the dry run had changed nothing", "")
}
