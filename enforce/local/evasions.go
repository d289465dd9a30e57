package local

// evasions counts how often each process was not signalled since something was
// different from what was judged that it may have changed itself: its environ,
// which it can write to, or some of its devices. One that does so at the right
// moment would otherwise never be signalled, each time for another reason.
type evasions map[identity]int

// maxEvasions is how often that is believed of one process. An honest one starts
// a program in another environment, or frees a device, in the very moment between
// judgement and signal once, if ever.
const maxEvasions = 2

// exhausted counts one evasion, and says whether the process counts as it was
// judged nevertheless.
func (e evasions) exhausted(id identity) bool {
	e[id]++
	return e[id] > maxEvasions
}
