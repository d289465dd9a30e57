// Package checkup prints what `genv doctor` found about a machine and `genv remote doctor` about hosts,
// and has the exit code of both.
//
//	err := checkup.WriteHost(p.Out, document, checkup.StyleOf(p.Program, output))
//	return checkup.Exit(document.Status)
package checkup
