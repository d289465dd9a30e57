// Package doctor is the model of `genv doctor`: checks, what each of them found, and the
// next step for whatever is not in order. The judgements are functions of facts, each a table
// of which the first row that holds is the result; one table has the status and next step of
// each cause. Machine collects the facts of this machine, remote/doctor what a controller sees
// of a host.
//
//	check := doctor.CheckDriver(doctor.Driver{Took: took, Modes: modes, Err: err})
//	if check.Status == doctor.Failed {
//		fmt.Println(check.Detail, check.NextStep)
//	}
//
// What could not be found out is Skipped, never OK. A host's own words are only in
// Detail: the next step follows from the Cause, so that a host can't tell an
// administrator what to run.
package doctor
