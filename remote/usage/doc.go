// Package usage adds up who used which GPU, and for how long, from what a controller sees in
// its cycles, and has it kept in a Store. An Account is pure: it reads no clock and no file.
//
//	account := usage.NewAccount(time.Local)
//	account.MaxGap = time.Minute
//	account.Look(now, cluster) // each time the hosts were asked
//	account.Count(now, events) // findings, terminations and detachments
//	sums := account.Take()     // what has to be stored
//
// Time between two looks counts for what the earlier one showed: that was true at its
// beginning, it was seen, and it can be counted without waiting to learn when it changed. So
// each second counts exactly once, and what begins and ends between two looks isn't counted. Looks
// are in whole seconds, and so are all amounts: sums are exact, whatever they are summed by.
//
// A device that several users share counts once for each of them, and once in the sums of its host, its model
// and the fleet: sums are of devices.
//
// A host that doesn't answer has unknown time, for what was attached to its devices when it
// answered last: it is neither attached nor idle time. Before a host has answered once, after a
// start of the controller, and when it has been removed from the fleet, nothing is counted.
// When there is no look at all for longer than MaxGap, that time is unknown too.
//
// A clock that is set moves no amounts: time is measured by the monotonic clock, and counted in
// the hours before the look that ends it. So the time in which a machine is suspended, which looks the same,
// isn't counted.
//
// A Recorder has what a controller sees counted, and writes it to a store in the background: no cycle waits for
// a disk or a server.
//
//	r := usage.StartRecorder(usage.RecorderOptions{Open: open, Now: time.Now, In: time.Local, Log: log})
//	sinks = append(sinks, r)
//	defer r.Close()
//
// It writes once a minute, so that kill -9 loses a minute at most; the next run says so. What can't be written is
// kept in memory, within bounds, and written later.
package usage
