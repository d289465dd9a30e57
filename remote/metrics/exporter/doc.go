// Package exporter serves the metrics of a running controller, over whichever listener.
//
//	counters := metrics.NewCounters(time.Now(), interval) // a sink of the controller, shown its cycles
//	e := &exporter.Exporter{Feed: feed, Counters: counters, Now: time.Now, Version: version}
//	e.Mount(mux, exporter.Options{})
//
// A scrape asks no host anything. The text is written once for each cycle, however many
// scrape it.
package exporter
