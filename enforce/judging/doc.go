// Package judging has a Judgement: what a call of rules.Judge was given, what it found so far, and what the rules see
// of each host (HostView, EnvView). It answers what rules and caps ask alike: which environment a process is in, who
// has a GPU since when and how sure that is, how long a finding has been there and when it is due. It drafts the hosts'
// orders, and applies no rule.
//
//	j := judging.New(policy, cluster, memory, now)
//	for _, h := range j.Hosts {
//		j.See(h)
//		due := j.CheckDue(h, &f, judging.NewClock(warn, f.ID))
//		j.End(&f, due, h, process)
//		j.Add(f)
//	}
package judging
