// Package exempt has the command `genv remote exempt`, which makes, lists and revokes
// exemptions from the rules. It asks the running controller over its socket; if none runs, it
// changes the exemptions in the folder of the stopped one. It connects to no host, and doesn't
// decide which exemptions are allowed: package operator does.
//
//	commands = append(commands, exempt.Command(program))
package exempt
