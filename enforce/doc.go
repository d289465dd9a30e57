// Package enforce has the values of judging a cluster: what a policy says (Policy, Settings, Cap), what is found and is
// to be done (Finding, Plan, Event), and what is remembered (Memory). It knows the name, key and texts of each Rule.
//
//	plan, next, events := rules.Judge(policy, cluster, memory, time.Now())
//	for _, f := range plan.Findings {
//		fmt.Println(f)
//	}
//	memory = next // if the cycle counts
//
// The packages that judge are above it: judging (a judgement and its view of each host), caps, and rules, which has
// Judge. All are pure: the same arguments give the same result, in the same order, without a clock, I/O or a log.
// enforce/local carries out an order on a machine, and enforce/policy reads a policy from a file.
//
// What is unknown never leads to an action, only to a Note: a host without a snapshot, a process whose environment
// could not be read, memory that the driver does not report.
package enforce
