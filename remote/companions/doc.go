// Package companions has what is sent because of the cycles of a controller besides orders: messages to users on their
// terminals, mail to them, and what the kernel guards of hosts are to do.
//
//	c.Companions = []controller.Companion{&companions.Guards{Interval: interval}, &companions.Messages{}}
//
// Each has its own memory, and the controller knows none of them. What is new is an event already, so each event is for
// one message; messages of one event are put together by user, and a user of a host gets so many in an hour.
package companions
