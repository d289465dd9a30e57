// Package checkup prints what `genv doctor` found about a machine, and has what it shares
// with `genv remote doctor`: the style, the exit code, and the file for a bug report.
//
//	err := checkup.WriteHost(p.Out, document, checkup.StyleOf(p.Program, output))
//	return checkup.Exit(document.Status)
package checkup
