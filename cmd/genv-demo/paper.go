package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// paper is what the demo prints on: colours only for a terminal whose user has
// not said NO_COLOR (https://no-color.org).
type paper struct {
	out     io.Writer
	colours bool
}

func newPaper(out io.Writer, getenv func(string) string) paper {
	file, ok := out.(*os.File)
	terminal := ok && term.IsTerminal(int(file.Fd()))
	return paper{out: out, colours: terminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"}
}

const (
	bold  = "1"
	dim   = "2"
	red   = "31"
	green = "32"
	cyan  = "36"
)

func (p paper) paint(colour, text string) string {
	if !p.colours {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

func (p paper) say(text string) { fmt.Fprintf(p.out, "\n%s\n", p.paint(bold, text)) }

func (p paper) command(line string) { fmt.Fprintf(p.out, "%s\n", p.paint(cyan, "$ "+line)) }

// introduce tells who is on stage and what is about to happen to them.
func (p paper) introduce(s *stage) {
	devices := 0
	for _, spec := range hostSpecs {
		devices += spec.devices
	}
	fmt.Fprintf(p.out, "%s\n", p.paint(bold, fmt.Sprintf("%d GPU hosts with %d GPUs, all on this machine", len(hostSpecs), devices)))
	fmt.Fprintf(p.out, "The GPUs are simulated. The SSH servers (%s to %s, port %d)\n"+
		"and the processes are real; all of them are yours and end with this demo.\n",
		hostSpecs[0].address, hostSpecs[len(hostSpecs)-1].address, s.fleet.Port)
	if s.fleet.Port != port {
		fmt.Fprintf(p.out, "Another program listens on port %d, so the hosts are on port %d, as in\n%s.\n", port, s.fleet.Port, s.hosts)
	}
	fmt.Fprintf(p.out, "\n%s\n", p.paint(dim, fmt.Sprintf("  %-8s %-7s %8s  %-11s %3s %8s   %s", "HOST", "USER", "PID", "PROCESS", "GPU", "MEMORY", "")))
	for i, spec := range jobSpecs {
		user := string(spec.user)
		if user == "" {
			user = "-"
		}
		line := fmt.Sprintf("%-8s %-7s %8d  %-11s %3d %5d MiB", spec.host, user, s.jobs[i].PID, spec.program, spec.device, spec.miB)
		fmt.Fprintf(p.out, "%s %s%s\n", p.mark(spec.violation == ""), line, p.reason(spec.violation))
	}
	for _, env := range envSpecs {
		for _, a := range env.attached {
			if a.violation != "" {
				line := fmt.Sprintf("%-8s %-7s %8s  %-11s %3d %9s", env.host, env.user, "", "(attached)", a.device, "")
				fmt.Fprintf(p.out, "%s %s%s\n", p.mark(false), line, p.reason(a.violation))
			}
		}
	}
}

func (p paper) mark(good bool) string {
	if good {
		return p.paint(green, "✓")
	}
	return p.paint(red, "✗")
}

func (p paper) reason(violation string) string {
	if violation == "" {
		return ""
	}
	return "   " + p.paint(red, violation)
}

// conclude tells what came of it.
func (p paper) conclude(s *stage, wrong []string) {
	if len(wrong) > 0 {
		p.say("This is not as it should be:")
		for _, w := range wrong {
			fmt.Fprintf(p.out, "%s %s\n", p.mark(false), w)
		}
		return
	}
	ended, detached := 0, 0
	for _, spec := range jobSpecs {
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
	p.say("Checked from outside of genv:")
	fmt.Fprintf(p.out, "%s the %d processes that broke a rule have ended, and %d devices were detached\n", p.mark(true), ended, detached)
	fmt.Fprintf(p.out, "%s the other %d, and %d shells, still run as if nothing had happened\n", p.mark(true), len(s.jobs)-ended, len(s.envs))
	fmt.Fprintf(p.out, "%s the dry run had changed nothing\n", p.mark(true))
}
