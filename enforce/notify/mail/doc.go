// Package mail notifies users by mail: it decides which mails are due,
// writes them, and sends them by a program such as sendmail(8) or by SMTP.
//
//	var memory mail.Memory
//	memory.Add(user, finding, rules, now)       // pure
//	for _, letter := range memory.Due(rules, now) {
//		post.Send(letter)                       // returns at once
//	}
//	unsent := post.Close(10 * time.Second)
//
// The first mail about a matter, which is a rule on a host, leaves within a minute.
// What follows within the hour is collected in one digest. Users, hosts and the fleet
// have limits, since a host may make up users and findings; what is over a limit waits
// for the digest, and what doesn't fit into that is counted.
//
// A mail is sent at most once: when the connection is lost between its end and the
// server's answer, it is not sent again.
//
// The package neither decides what a user gets to know nor keeps a record: see
// enforce/notify and Options.Done.
package mail
