// Package controller turns the wheel of `genv remote enforce`: collect a
// snapshot from every host, evaluate the policy over the cluster, dispatch the
// reports. Everything that changes a host passes one choke point, act, where
// dry run stands.
//
// How a host is spoken with is a Link: Streams keeps a conversation with it over
// genv usage serve, or whatever else it understands; Commands runs one genv
// command for each question, as a 1.4.3 controller does. The package prints
// nothing; a Cycle says what was seen, concluded and done.
package controller
