// Package rules judges a cluster by a policy. Judge compares each host's report with the rules, and returns a Plan: the
// findings (a violated rule and why) and an Order (enforce/order) for each host. It also returns the next Memory, and
// Events: what changed since the last judgement.
//
//	plan, next, events := rules.Judge(policy, cluster, memory, time.Now())
//
// Read Judge first: its steps are its methods. The rules about one host are in processes.go and environments.go, and
// the caps in enforce/caps.
package rules
