// Package caps judges caps: what people may have at most, also as long as others wait or have reserved. Judge counts
// what each person has (held.go), applies each cap (judge.go, waiting.go, reserved.go), and chooses what goes
// (choice.go): never more than the excess, and what costs people least first. It adds findings to the judgement, and is
// pure.
//
//	c := caps.New(j)
//	c.Count(h) // for each host
//	c.Judge()
//	for _, c := range j.Counts.On("gpu-01", "alice") { … }
package caps
