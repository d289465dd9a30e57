// Package controller turns the wheel of `genv remote enforce`: collect a
// snapshot from every host, evaluate the policy over the cluster, dispatch the
// reports. Everything that changes a host passes one choke point, act, where
// dry run stands.
//
// Hosts are asked through a Link, which remote/agent provides. The package prints
// nothing; a Cycle says what was seen, concluded and done.
package controller
