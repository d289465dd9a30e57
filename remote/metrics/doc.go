// Package metrics turns the state of GPU hosts into the text that Prometheus scrapes.
//
//	text := metrics.Genv143([]metrics.Host{{Name: "gpu-01", Installed: true, Snapshot: s}})
//
// The texts are pure: cmd/genv/monitoring collects the state of hosts. An Exporter serves what a
// running controller knows, over whichever listener:
//
//	counters := metrics.NewCounters(time.Now(), interval) // a sink of the controller, shown its cycles
//	e := &metrics.Exporter{Feed: feed, Counters: counters, Now: time.Now, Version: version}
//	e.Mount(mux, false)
//
// A scrape asks no host anything. Its text is written once for each cycle, however many
// scrape it.
//
// The names of `genv monitor` are those of genv 1.4.3, which existing dashboards use
// (genv143.go). A running controller has names of its own, which begin with genv_ too and
// are apart from those: gauges of its present state (hosts.go, fleet.go), and what its
// Counters counted (counters.go). A new family goes into one of these files and into
// docs/monitoring.md.
//
// Unknown is an absent series, never 0: a value that a host did not report, the
// processes of an environment if it can't be known which ones are in it, and everything
// about a host that did not answer.
package metrics
