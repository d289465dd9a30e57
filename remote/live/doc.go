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
//
// NewHandler serves a Feed over HTTP: JSON documents, and server-sent events that say when there is
// something new.
//
//	/api/v1/fleet          Fleet, genv.live.fleet/1
//	/api/v1/gpus           GPUs, genv.remote.gpus/1
//	/api/v1/hosts/NAME     HostDocument, genv.live.host/1
//	/api/v1/users/NAME     UserDocument, genv.live.user/1
//	/api/v1/findings       Findings, genv.live.findings/1
//	/api/v1/events?after=N Events, genv.live.events/1
//	/events                server-sent events: "fleet", "event" and "missed"
//
// It is for a unix socket as for a web server, and only reads; Client is for the other side. Whoever
// may connect sees everything: the listener decides who may. NewActions, for a unix socket only, takes
// what a person asks a controller to do, from root and the account of the controller; SendAction is
// for the other side.
package live
