// Package order has what the kernel guard of a host is ordered to do, and what it says about
// itself: the files guard-order.json and guard.json in root's run folder.
//
// An order has a lease: whoever gave it, `genv guard run` or a controller, gives it again
// before the lease ends. A guard without a valid order lets everything through.
//
//	given, err := order.Give("/run/genv", order.Order{Mode: mode.Enforce, Lease: time.Minute, By: "alice"}, "", at)
//	given, err = order.Renew("/run/genv", given, at) // ErrReplaced: there is another order now
//	status, err := order.ReadStatus("/run/genv")
//
// The package doesn't carry out orders: package guard does. It has no clock and knows
// nothing of the kernel, so that controllers can use it, too.
package order
