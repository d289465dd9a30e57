// Package exemption keeps rules away from a user, a host or a GPU for some hours, because
// an operator said so.
//
//	list, err := list.Add(exemption.Exemption{Who: exemption.Who{User: "bob"}, …})
//	policy := exemption.With(file, list, now) // for enforce.Judge
//	list, expired := list.Expire(now)
//
// Each exemption has an author, a reason and an end. What a policy file exempts stays
// exempt without them: package enforce/policy. The package is pure: a List is a value.
package exemption
