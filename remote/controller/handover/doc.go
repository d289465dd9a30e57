// Package handover carries the memory of the controller that leads to those that wait to take
// its place, through etcd:
//
//	publisher.Publish(ctx, epoch, documents)  // the leader, after each cycle
//	follower.Poll(ctx)                        // a standby, every second
//	memory, found, err := follower.Memory(now)
//
// The memory is split by host and by user into parts, each below etcd's limit for a request,
// of which those are written that changed. A part that is missing is a fresh start for its
// findings: warnings and times of grace begin again. A head has what belongs to all, such as
// holds and exemptions, and is in every request. So what is there when a leader dies between two
// requests is a memory, too: each host and user is as before or after, the whole is as old as its oldest
// part, and what the leader before wrote by its own clock is not mixed with it.
package handover
