// Package holdings decides about the caps of users by what they hold on all hosts: which
// devices and environments, how much memory, and what losing each of it costs them.
//
//	decisions := holdings.Decide(shards, rules) // one for each shard
//	remaining := shards[0].Remaining()
//	for _, over := range decisions[0].Over {
//		excess, still := remaining.Excess(&over)
//	}
//
// The hosts of a fleet may be divided into shards, each judged by a controller of its own. A
// shard's holdings are a value that can be sent, and the decisions are the same however the
// hosts are divided. A decision is applied to the holdings of now, which may be newer than
// those it was made from: what was given back since is not taken, nor is more taken than is
// still over the cap. It is pure. What users hold, and what is done, is for package enforce.
package holdings
