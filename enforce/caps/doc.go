// Package caps judges caps: what people may have at most, including while others wait or have reserved. It adds
// findings to the judgement, and is pure. Its steps are:
//
//  1. Count what each person has on a host: what is attached to the environments, or used by the processes (person.go).
//     What ends because of the rules before doesn't count.
//  2. Take the caps in their order: those with keys of their own, the list, reservations (judge.go).
//  3. Apply each to its people, alone or together, on each host or on all. What percentages and "all but" are of is in
//     base.go.
//  4. Find the devices that it is about. One that several people have is one of together (device.go).
//  5. Find when it is due at the earliest (due.go). What ends by then isn't taken again.
//  6. If more counts than it allows, choose what goes (choice.go, turn.go).
//  7. Add findings about what each person loses (lose.go), each with its own time. What is due may wait for other looks
//     (due.go).
//  8. Put what is due into the drafts of the orders. It counts for no later cap.
//
// A cap with while does 5 to 8 for each wait, and takes exactly what that lacks (waiting.go, exactly.go). A reservation
// is a cap of those who haven't reserved (reserved.go). Hosts are told what counts (counts.go).
//
//	c := caps.New(j)
//	c.Count(h) // for each host
//	c.Judge()
//	for _, c := range j.Counts.On("gpu-01", "alice") { … }
package caps
