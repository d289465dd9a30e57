// Package live is the present state of a fleet, for those who look at it: the live view,
// the web page, the metrics and the socket.
//
//	feed := live.NewFeed(live.Options{Now: time.Now})
//	c.Sinks = append(c.Sinks, feed)              // the controller's events
//	feed.Show(&cycle)                            // at the end of each cycle
//	fleet := feed.Fleet()                        // what is there now
//	watch := feed.Watch(); defer watch.Close()   // and when it changes
//
// A Feed asks no host anything: it keeps what the cycles of a controller saw and decided.
// Taking a cycle costs next to nothing; the documents are derived when somebody looks,
// once for all viewers. A viewer is only woken, and fetches what it wants: one that is
// slow or gone holds nothing up, and misses events that are no longer kept.
package live
