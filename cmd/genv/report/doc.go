// Package report has the command `genv remote report`, which says who used which GPUs over time,
// `genv remote history forget`, and the flags with which `genv remote enforce` keeps what they read. It reads the
// folder of the controller or a server, and connects to no host and to no controller.
//
//	commands = append(commands, report.Command(program))
//	history, err := report.ReadHistory(c, &program, leader, log)
package report
