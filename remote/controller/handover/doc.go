// Package handover carries the memory of the controller that leads to those that wait to take
// its place, through etcd:
//
//	publisher.Publish(ctx, epoch, document)  // the leader, after each cycle
//	follower.Poll(ctx)                       // a standby, every second
//	memory, found, err := follower.Memory(now)
//
// The memory is one value. It is written, together with a head, only when it has changed; else the head is written
// alone: it says of when the memory is, and has what operators asked for, such as holds and exemptions. A memory
// that is longer than etcd takes is left out: then warnings and graces start again.
package handover
