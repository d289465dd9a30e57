// Package caps judges caps: what people may have at most, including while others wait or have reserved. It adds
// findings to the judgement, and is pure. Its steps are:
//
//  1. Count what each person has on a host: devices that are attached to environments or used by processes (person.go).
//     What ends because of earlier rules doesn't count.
//  2. Take the caps in their order: those with their own keys, the list, reservations (judge.go).
//  3. Apply each to its people, alone or together, on each host or on all. base.go has the number of GPUs for
//     percentages and "all but".
//  4. Find the devices that it covers. A device of several people is a joint one (together in device.go).
//  5. Find when it is due at the earliest (due.go). What ends by then isn't taken again.
//  6. If the limit is exceeded, choose devices (choice.go, turn.go).
//  7. Add findings about each person's loss (lose.go), with their own times. A due one may be deferred (due.go).
//  8. Add due actions to the drafts of the orders. They count for no later cap.
//
// A cap with while does 5 to 8 for each wait, and takes exactly what that lacks (waiting.go, exactly.go). A reservation
// is a cap of the people without it (reserved.go). Hosts are told the counts (counts.go).
//
//	c := caps.New(j)
//	c.Count(h) // for each host
//	c.Judge()
//	for _, c := range j.Counts.On("gpu-01", "alice") { … }
package caps
