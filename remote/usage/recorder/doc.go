// Package recorder has what a controller sees counted, and writes it to a store in the
// background: no cycle waits for a disk or a server.
//
//	r := recorder.Start(recorder.Options{Open: open, Now: time.Now, In: time.Local, Log: log})
//	sinks = append(sinks, r)
//	defer r.Close()
//
// It writes once a minute, so that kill -9 loses a minute at most; the next run says so. What can't
// be written is kept in memory, within bounds, and written later.
package recorder
