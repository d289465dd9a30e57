// Package policycheck finds names in a policy that nothing else knows: users without an
// account, and hosts and labels that the inventory doesn't have. They may be misspelt, and
// then no user or host gets the rules that were meant for them.
//
//	checked := policycheck.Check(references, policycheck.Known{Hosts: hosts, Groups: groups, Accounts: accounts})
//	for _, w := range checked.Warnings { … }
//
// It doesn't read the policy: package policy does. Accounts are asked for with getent(1),
// within a bounded time; what could not be asked is reported as not checked, and never as
// unknown.
package policycheck
