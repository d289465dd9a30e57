// Package openlog is how the process that keeps the kernel guard says which processes opened
// devices, through whatever node: a small file in root's run folder, which all who watch the
// machine read when it changes.
//
//	log := openlog.New("/run/genv")         // the one that keeps the guard
//	go log.Run(ctx, failed)
//	log.Add(pid)
//
//	r := openlog.NewReader("/run/genv")     // each of those who wait
//	pids, err := r.Next()                   // after each change of openlog.FileName there
//
// The file is replaced as a whole, at once after an open and then at most every 100 ms. It has
// the last 256 opens with a count, so that a reader who is late misses none of them without
// noticing. What is in the file before a Reader begins counts for nothing.
package openlog
