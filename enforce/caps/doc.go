// Package caps judges caps: what people may have at most, as long as others wait or have reserved, too. Judge counts
// what each person has (held.go), applies each cap (judge.go, waiting.go, reserved.go), chooses what goes
// (choice.go): never more than the excess, and those devices first that cost their people least, and adds findings
// about that to the judgement. It is pure.
//
//	caps.Judge(j)
//	for _, c := range j.Counts.On("gpu-01", "alice") { … }
package caps
