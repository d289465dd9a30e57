// Package checkup prints what `genv doctor` and `genv remote doctor` found: the problems with
// their next steps, each cause that several hosts share once, and then a table.
//
//	err := checkup.WriteFleet(p.Out, document, checkup.StyleOf(p.Program, output))
//	return checkup.Exit(document.Status)
package checkup
