// Package report has the command `genv remote report`, which says who used which GPUs over time,
// and the flags with which `genv remote enforce` keeps what it reads. It reads the folder of
// the controller, and connects to no host and to no controller.
//
//	commands = append(commands, report.Command(program))
//	history, err := report.ReadHistory(c, &program, log)
package report
