package app

import (
	_ "embed"
	"strings"
)

// texts are descriptions and examples: a command after ==, its paragraphs, and examples as
// a command line after $ with a line that explains it.
//
//go:embed texts.txt
var texts string

// about is what a page says beyond the flags.
type about struct {
	description []string // paragraphs
	examples    []Example
}

// describe finds the texts of a command.
func describe(name string) about {
	_, section, found := strings.Cut("\n"+texts, "\n== "+name+"\n")
	if !found {
		return about{}
	}
	section, _, _ = strings.Cut(section, "\n== ")
	var a about
	lines := strings.Split(strings.TrimSpace(section), "\n")
	for i := 0; i < len(lines); i++ {
		switch line, isExample := strings.CutPrefix(lines[i], "$ "); {
		case isExample && i+1 < len(lines):
			a.examples = append(a.examples, Example{Line: line, Text: lines[i+1]})
			i++
		case line != "":
			a.description = append(a.description, line)
		}
	}
	return a
}
