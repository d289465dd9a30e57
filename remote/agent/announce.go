package agent

import "github.com/seed-3119e985/genv/remote/agent/controllers"

// Announce has hosts that can do it note that this controller enforces them, from the next
// snapshot on. A Pool that is not told so only looks.
func (p *Pool) Announce(self controllers.Controller) { p.announced.Store(&self) }

// toAnnounce is what to send to the host about this controller; nil if there is nothing new.
func (t *streamTransport) toAnnounce() *controllers.Controller {
	self := t.pool.announced.Load()
	if self == nil || !t.stream.Greeting.Can(CapabilityControllers) {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if self == t.announced {
		return nil
	}
	return self
}

// learnOfOthers keeps what the host answered to an announcement, which is nil if there was
// none.
func (t *streamTransport) learnOfOthers(self *controllers.Controller, others controllers.Answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if self != nil {
		t.announced = self
	}
	t.others = others.Bounded()
}
