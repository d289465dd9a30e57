// Package exempt has `genv remote exempt`: exemptions from the rules that end by themselves. It
// asks the controller that runs, or else changes what a stopped one has kept. It connects to no
// host.
package exempt
