// Package recorder records what a controller judges, in files of an hour each, and removes those
// that are too old or too many. It writes in the background: no cycle waits for a disk.
//
//	r := recorder.Start(recorder.Options{Dir: dir, Keep: week, MaxBytes: 1e9, Now: time.Now, Log: log})
//	r.Use(policy, interval)
//	controller.Witness = r
//	defer r.Close()
//
// What can't be written, or comes faster than it is written, is left out; that is said once, and
// noted in the next file. After kill -9, at most what was judged in the last minute is missing.
package recorder
