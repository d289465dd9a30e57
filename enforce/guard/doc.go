// Package guard keeps the kernel guard of a host: it carries out the last order by telling the
// program in the kernel (package kernel) who may open what, for as long as the order holds.
//
//	order := guard.Order{Mode: guard.Enforce, Lease: time.Minute, By: "alice"}
//	given, err := guard.GiveOrder("/run/genv", order, "", at)
//	given, err = guard.RenewOrder("/run/genv", given, at) // ErrReplaced: there is another order now
//	status, err := guard.ReadStatus("/run/genv")
//
//	k := guard.Keeper{RunDir: "/run/genv", Open: …, Read: …, Devices: …}
//	err := k.Run(ctx) // returns when ctx ends; the guard then stays until its lease ends
//
// One Keeper at a time works on a host, the one that holds guard.lock; others wait for it.
// A Keeper follows the state files, the order and the veto with inotify, and looks again
// every second in case it missed something. It never runs nvidia-smi, and reads what may
// hang, such as files of users and of the driver, apart from what renews the lease.
//
// An order (guard-order.json) has a lease: who gave it, `genv guard run` or a controller,
// gives it again before the lease ends. A guard without a valid order lets everything through.
// What the guard does is in guard.json.
//
// What was denied goes into guard-denials.json, in which no user can take all the room, and to Denied. Who opened a
// device without that goes into guard-opens.json (watch.OpenLog), for those who wait for a
// reason to look.
//
// The package doesn't talk to the kernel itself, so that controllers and policies can name modes
// and orders without the code that does.
package guard
