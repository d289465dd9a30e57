// Package app is the program of all commands: it parses a command line, reads the configuration
// for it, runs the command, prints its error, and decides the exit code.
//
//	ctx, p := app.Process(version)
//	os.Exit(app.Run(ctx, p, os.Args))
//
// It has the commands about genv itself: version, help, man and completion.
package app
