// Package recording writes what a controller judged into a file, and reads it back, so that it can
// be judged again: by the same policy, with the same result, or by another one.
//
//	w := recording.NewWriter(file, recording.Header{Version: version})
//	err := w.Add(&recording.Input{…}) // for each judgement
//	err = w.Flush()                   // now and then
//
//	r, err := recording.NewReader(file)
//	for step, err := r.Next(); err == nil; step, err = r.Next() { … }
//
// A file begins with all that is known: the hosts, their snapshots, the policy and what the
// controller remembers. After that it has only what changes. It contains what the rules look at,
// and no command lines (see Judged). A file that ends in the middle is read until its last whole
// part. Package recorder decides when files begin and are removed, and package trial judges them.
package recording
