// Package guard keeps the kernel guard of a host: it carries out the last order (package
// order) by telling the program in the kernel (package kernel) who may open what (package
// access), for as long as the order holds.
//
//	k := guard.Keeper{RunDir: "/run/genv", Open: …, State: …, Devices: …}
//	err := k.Run(ctx) // returns when ctx ends; the guard then stays until its lease ends
//
// One Keeper at a time works on a host, the one that holds guard.lock; others wait for it.
// A Keeper follows the state files, the order and the veto with inotify, and looks again
// every second in case it missed something. It never runs nvidia-smi, and reads what may
// hang, such as files of users and of the driver, apart from what renews the lease.
//
// What was denied goes into guard-denials.json (package denials), and to Denied. Who opened a
// device without that goes into guard-opens.json (package openlog), for those who wait for a
// reason to look.
package guard
