// Package controllers has the command `genv remote controllers`: which of several controllers
// leads, which ones are standbys or lost, and which one acts on each host. It asks etcd, and
// hosts by what it is given; it changes nothing, and hosts don't take it for a controller.
//
//	commands = append(commands, controllers.Command(program, flags, ask))
package controllers
