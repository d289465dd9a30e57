package mail

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"
)

// job is a letter and how often it was tried.
type job struct {
	letter Letter
	tries  int
	since  time.Time // when it came
	next   time.Time // when it is tried next
	id     string    // of the message: the same in every try
}

// accept queues a letter, unless the queue is full.
func (p *Post) accept(l Letter) {
	now := p.options.Now()
	if len(p.waiting) >= queueLength {
		p.options.Done(Result{Letter: l, Err: ErrFull})
		return
	}
	p.waiting = append(p.waiting, &job{letter: l, since: now, next: now, id: "genv." + strings.ToLower(rand.Text())})
}

// longestWait is how long the worker sleeps at most: the clock may be set.
const longestWait = time.Minute

// next is the job to try now, or how long to wait for one.
func (p *Post) next() (*job, time.Duration) {
	now, wait := p.options.Now(), longestWait
	for _, j := range p.waiting {
		at := j.next
		if at.Before(p.resume) {
			at = p.resume
		}
		left := at.Sub(now)
		if left <= 0 || left > 2*maxPause { // or the clock was set back
			return j, 0
		}
		wait = min(wait, left)
	}
	return nil, wait
}

// pause is how long to wait after so many tries.
func (p *Post) pause(tries int) time.Duration {
	pause := p.options.Pause
	for ; tries > 1 && pause < maxPause; tries-- {
		pause *= 2
	}
	return min(pause, maxPause)
}

// learn remembers whether the server can be reached, so that not every letter waits for
// one that can't.
func (p *Post) learn(err error, now time.Time) {
	if !isServer(err) {
		if err == nil {
			p.failing, p.pauses, p.resume = false, 0, time.Time{}
		}
		return
	}
	p.pauses++
	p.resume = now.Add(p.pause(p.pauses))
	if !p.failing {
		p.failing = true
		p.options.Warn(fmt.Errorf("mail waits, and is tried again: %w", err))
	}
}

// remove takes a job out of the queue.
func (p *Post) remove(done *job) {
	p.waiting = slices.DeleteFunc(p.waiting, func(j *job) bool { return j == done })
}
