// Package operator describes what a person asks a running controller to do by hand: end a
// process, warn a user, take a GPU away, exempt somebody for some hours, or put all
// enforcement on hold.
//
//	action := operator.Action{
//		Schema: operator.ActionSchema, Kind: operator.Terminate, Reason: "asked for by its owner",
//		Host: "gpu-1", PID: 4711, Start: 880123, User: "bob", // as the row shows them
//	}
//	err := action.Check()
//
// An Action names what its author saw: the controller refuses it if that is no longer
// there. The package has values only; remote/controller carries them out, and
// remote/live carries them over a socket.
package operator
