// Package policy reads the policy file: which rules apply, to whom, where and when, and what is exempt.
//
//	file, err := policy.Parse("policy.yaml", data)
//	if err != nil {
//		return err // one line with the place and what to write instead
//	}
//	plan, memory, events := rules.Judge(file, cluster, memory, time.Now())
//	for _, e := range file.Explain(enforce.Query{Host: "gpu-01", User: "bob", At: time.Now()}) {
//		fmt.Println(e.Key, e.Value, e.From)
//	}
//
// A File is an enforce.Policy. Its settings are enforce.Keys, each with its reader; other keys are read here. Flags of
// the command line take precedence over it: see File.Flags.
//
// # Which value applies
//
// A setting has a built-in value, perhaps one in `defaults:`, and any number in `overrides:`. Of the overrides that
// select a host, a user and a time, the most specific one with the setting wins, compared in this order:
//
//  1. users: a user's name, then a group of users, then none
//  2. hosts: a name, then a pattern of names, then none
//  3. labels: more of them before fewer
//  4. time: with a schedule, then without
//  5. of two that are equal in all of these, the later in the file; with two schedules that overlap this is an error,
//     since a setting would change in the middle of its scheduled hours
//
// WithExemptions suspends rules for a user, a host or a GPU for some hours, at an operator's request. Each such
// exemption has an author, a reason and an end.
package policy
