// Package replay judges a recording again: by the policy that was in force, and by another one. It
// is pure.
//
//	trial := replay.New(policy, since)
//	summary, err := recording.Read(files, trial.Step)
//	result := trial.Result()
//
// The policy that was in force is judged with what the controller remembered at that moment, so it
// comes to what the controller came to; each judgement is compared with the recorded one. The
// other policy begins with the same memory, as if it had been put in force by a reload, and then
// goes on with its own. A process that it would have ended, and an attachment that it would have
// removed, is left out of the snapshots that follow: so it counts once, and not for caps any more.
package replay
