// Package listeners is where a controller serves what it knows: the flags of `genv remote
// enforce` and `genv remote watch`, and the listeners that they ask for.
//
//	config, err := listeners.ReadConfig(c, getenv, once) // from Flags
//	open, err := listeners.Open(ctx, config, listeners.Shown{Feed: feed}, log)
//	defer open.Close()
//
// Each listener has a file with its flags, the part of Config that they fill, and a method
// of Listeners that opens it; Open calls them in turn. All are served by package server,
// which bounds what clients can do. The flags are read once: a reload changes what is shown,
// and not where.
package listeners
