// Package completion completes command lines of genv in bash and zsh.
//
//	source <(genv completion bash)
//
// Command prints the script that a shell evaluates. At each Tab it runs the hidden command
// `genv __complete` (Completer) with the words of the line, and offers what that prints.
// Commands, flags and their values come from the cli.App, so there is no second list of
// them.
//
// Completion reads local files only (the inventory, the state files, the accounts), opens no
// connection to a host, writes nothing, and prints no errors. What it offers is quoted for
// the shell; what can't be shown on a terminal is left out.
package completion
