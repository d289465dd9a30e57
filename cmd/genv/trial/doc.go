// Package trial has the command `genv policy try`, which says what another policy would have done,
// and the flags with which `genv remote enforce` records what it judges. The command reads the
// folder of the controller, and connects to no host and to no controller.
//
//	subcommands = append(subcommands, trial.Command(program))
//	open, err := trial.ReadRecord(c, &program, log)
package trial
