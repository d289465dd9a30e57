// Package handover carries the memory of the controller that leads to those that wait to take
// its place, through etcd:
//
//	publisher.Publish(ctx, epoch, documents)  // the leader, after each cycle
//	follower.Poll(ctx)                        // a standby, every second
//	memory, found, err := follower.Memory(now)
//
// The memory is split by host and by user into parts, each smaller than etcd's limit for a request.
// Only parts that have changed are written. If a part is missing, its findings start again: warnings
// and graces are repeated. A head, written with every request, has what is not split, such as holds
// and exemptions. A leader may die between two requests: then each host and user is as before or
// after the write, and the memory counts as old as its oldest part.
//
// When the leader's clock is set, all parts are written again. Until then, those that have times of the
// clock as it was are missing.
package handover
