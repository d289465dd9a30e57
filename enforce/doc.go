// Package enforce judges a cluster by a policy. Evaluate looks at what every
// host said of itself and returns a Plan: the findings (a violated rule and
// why) and for each host a Report, the list of what that host is to do.
//
//	plan := enforce.Evaluate(policy, cluster, time.Now())
//	for _, f := range plan.Findings {
//		fmt.Println(f)
//	}
//
// The package is pure: the same cluster, policy and time give the same plan, in
// the same order. It has no clock, does no I/O and writes no log. Carrying out
// a report on a machine is the work of enforce/local, and reading a policy
// from a file that of enforce/policy.
//
// What is unknown is never held against anybody: a host without a snapshot, a
// process whose environment could not be read, a memory that the driver would
// not tell lead to a Note, and to no action.
package enforce
