// Package enforce has the values that judging works with: the policy (Policy, Settings, Cap), the result (Finding,
// Plan, Event) and the Memory of earlier judgements. It knows the name, key and texts of each Rule.
//
//	plan, next, events := rules.Judge(policy, cluster, memory, time.Now())
//	for _, f := range plan.Findings {
//		fmt.Println(f)
//	}
//	memory = next // if the judgement counts
//
// The packages that judge are judging (a judgement and its view of each host), caps, and rules, which has Judge. All
// are pure: the same arguments give the same result in the same order, without a clock, I/O or a log. enforce/local
// carries out an order on a machine, and enforce/policy reads a policy from a file.
//
// Unknown values never lead to an action, only to a Note: a host without a snapshot, a process whose environment could
// not be read, memory that the driver doesn't report.
package enforce
