// Package enforce judges a cluster by a policy. Judge compares what every host reports with the rules and returns a
// Plan: the findings (a violated rule and why) and for each host an Order (enforce/order), the list of what that host
// is to do. It also returns the Memory for the next cycle, and Events: what changed since the last one.
//
//	plan, next, events := enforce.Judge(policy, cluster, memory, time.Now())
//	for _, f := range plan.Findings {
//		fmt.Println(f)
//	}
//	memory = next // if the cycle counts
//
// The package is pure: the same arguments give the same result, in the same order. It has no clock, does no I/O and
// writes no log. Carrying out an order on a machine is the work of enforce/local, and reading a policy from a file that
// of enforce/policy.
//
// Read Judge first. Its steps are methods of judgement, which has what they share; a rule is a file rule_….go. The
// values are in finding.go, plan.go, event.go and memory.go.
//
// What is unknown never leads to an action, only to a Note: a host without a snapshot, a process whose environment
// could not be read, memory that the driver does not report.
package enforce
