// Package judging has a Judgement: the arguments of a call of rules.Judge, its findings so far, and the view of each
// host (HostView, EnvView). It answers the questions that rules and caps share: which environment a process is in, who
// has a GPU since when and how certain that is, how long a finding has been present and when it is due. It drafts the
// hosts' orders, and applies no rule.
//
//	j := judging.New(policy, cluster, memory, now)
//	for _, h := range j.Hosts {
//		j.Fill(h)
//		due := j.CheckDue(h, &f, judging.NewWarning(warn, f.ID))
//		j.End(&f, due, h, process)
//		j.Add(f)
//	}
package judging
