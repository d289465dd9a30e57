// Package rules judges a cluster by a policy. Judge compares what every host reports with the rules and returns a Plan:
// the findings (a violated rule and why) and for each host an Order (enforce/order), what that host is to do. It also
// returns the Memory for the next cycle, and Events: what changed since the last one.
//
//	plan, next, events := rules.Judge(policy, cluster, memory, time.Now())
//
// Read Judge first: its steps are its methods. The rules about one host are in processes.go, attachments.go and
// env_memory.go, and the caps in enforce/caps.
package rules
