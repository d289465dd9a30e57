// Package retry is the policy by which hosts that fail are tried again. There is no other one:
// sshclient dials once, and package agent asks a Backoff what to do after each failure.
//
//		pause, login := backoff.AfterProbe(err, took)
//		pause := backoff.AfterLogin(err, failing)
//		timer := time.AfterFunc(retry.Together(pause), try)
//
//	  - A host that does not answer is probed: one TCP connect, and the wait for the
//	    first byte of sshd's banner, for 1.5 s. The first pause is 250 ms; they double
//	    until probes begin every 2.8 to 3.4 s, at random. Ten times a second those that
//	    are due begin together. Each host has at most one probe under way, and no
//	    goroutine between probes. Names are resolved and ssh_config is read at most
//	    every 30 s. So a host is enforced within 5 s of being reachable, at an interval
//	    of 1 s.
//	  - A host that answers is logged in to, and asked for a snapshot before it comes
//	    back into the cycles. If that fails, it is tried about every 3 s; all such
//	    hosts together get 10 logins a second, and a quarter of Fanout.
//	  - Failures that need an administrator are tried less often: refused keys after 2
//	    to 16 minutes (sshd locks out addresses at which logins keep failing), unknown
//	    host keys after 10 s to 2 minutes, changed ones after 1 to 10 minutes, sudo and
//	    versions after 3 to 30 s. A key that was accepted before gets five tries 3 s
//	    apart, since a booting host refuses all keys. A changed known_hosts ends the
//	    pause.
//	  - Hosts behind a jump host or a ProxyCommand can't be probed; each try is a
//	    login, by the second rule. One that drops packets silently is found again when
//	    the login that waits for it is over, after at most the connect timeout.
package retry
