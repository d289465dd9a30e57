// Package checkup prints what `genv doctor` and `genv remote doctor` found: a table, and
// below it what is not in order, with the same cause of several hosts told once.
//
//	err := checkup.WriteFleet(p.Out, document, checkup.StyleOf(p.Program, output))
//	return checkup.Exit(document.Status)
package checkup
