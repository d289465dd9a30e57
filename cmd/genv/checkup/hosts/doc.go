// Package hosts prints what `genv remote doctor` found: the problems with their next steps,
// each cause that several hosts share once, and then a table.
//
//	err := hosts.Write(p.Out, document, checkup.StyleOf(p.Program, output))
package hosts
