// Package caps has controllers that judge different hosts apply the caps of users together.
//
//	member := caps.NewMember(caps.MemberOptions{Store: client, Key: "/genv/lab", Shard: 3, …})
//	go member.Run(ctx)
//	plan, memory, events, held := enforce.JudgeShard(…, member.Shard())
//	member.Publish(held)
//
// The leader of each shard of the hosts writes what users hold there to
// KEY/caps/holdings/NN. One judge, elected by KEY/caps/judge, decides and writes to
// KEY/caps/decision/NN what is to go in each shard. All writes are guarded: one who was
// replaced writes nothing. Package enforce/holdings decides and applies.
//
// A decision says from what it was made. It is not used if it is older than some seconds, or
// was made from the holdings of an earlier leader. As long as a shard may still act on an
// earlier decision, nothing else is taken from the users whom that decision names. Shards look at
// their hosts at different times, so something is due only when all shards in which a user holds
// something have looked since the user was first found over a cap.
package caps
