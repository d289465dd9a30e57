// Package api serves a live.Feed over HTTP: JSON documents, and server-sent events that say
// when there is something new.
//
//	/api/v1/fleet          live.Fleet, genv.live.fleet/1
//	/api/v1/gpus           live.GPUs, genv.remote.gpus/1
//	/api/v1/hosts/NAME     HostDocument, genv.live.host/1
//	/api/v1/users/NAME     UserDocument, genv.live.user/1
//	/api/v1/findings       Findings, genv.live.findings/1
//	/api/v1/events?after=N Events, genv.live.events/1
//	/events                server-sent events: "fleet", "event" and "missed"
//
// New returns the handler, for a unix socket as for a web server; it only reads. Client is
// for the other side. Whoever may connect sees everything: the listener decides who may.
package api
