// Package web is the page of a fleet: what is free, and who uses what.
//
//	handler := web.New(feed, web.Options{Now: time.Now, Names: web.AllNames})
//
// It only reads. The pages are rendered on the server and work without JavaScript; where
// there is some, they follow the server-sent events of remote/live. Everything that
// comes from hosts and users is escaped by html/template, and shortened.
//
// A handler answers requests of loopback's names and of Options.Hosts only, as otherwise
// any web site could read the page through the browsers of its visitors (DNS rebinding).
// What a viewer may see is decided once, by a live.Source, and not by the pages.
package web
