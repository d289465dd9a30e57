// Package checkup prints what `genv doctor` found about a machine and `genv remote doctor` about hosts,
// and has what both share: the exit code, and the file for a bug report.
//
//	err := checkup.WriteHost(p.Out, document, checkup.StyleOf(p.Program, output))
//	return checkup.Exit(document.Status)
package checkup
