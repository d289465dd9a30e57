// Package access decides which users may open which device nodes while a guard is on. It is
// pure.
//
//	plan := access.Of(access.Facts{Files: &files, Proven: proven, Devices: devices, Order: &order})
//	plan.Allowed[1001].Has(3) // uid 1001 may open /dev/nvidia3
//
// A user may open the devices that one of the user's own environments is attached to. Only
// the kernel says to which user an environment belongs: a living process of that uid is
// registered in it. The user name in the state files, and the uid without such a process,
// give nothing. Where the state is in doubt, everything that was allowed stays allowed.
package access
