// Package app makes a program of commands: it parses a command line, reads the configuration
// for it, runs the command, prints its error, and decides the exit code.
//
//	ctx, p := app.Process(version)
//	os.Exit(app.Run(ctx, p, commands, os.Args))
//
// It adds the commands about genv itself: version, help, man and completion.
package app
