package enforce

import (
	"maps"
	"runtime"
	"sync"
)

// minPart is how many hosts are worth a goroutine of their own.
const minPart = 256

// inParts splits n hosts into parts that are handled side by side, as many as there are
// processors. It returns when all of them are.
func inParts(n int, handle func(part, from, to int)) {
	parts := partsOf(n)
	var running sync.WaitGroup
	for part := 1; part < parts; part++ {
		running.Go(func() { handle(part, part*n/parts, (part+1)*n/parts) })
	}
	handle(0, 0, n/parts)
	running.Wait()
}

// partsOf is how many parts inParts makes of n hosts, at least one.
func partsOf(n int) int { return max(1, min(n/minPart, runtime.GOMAXPROCS(0))) }

// sideBySide applies a rule to each host, to several at once. The rule may change what is of its
// host, add findings and notes, and count presence; the rest it only reads. What it adds is put
// together in the order of the hosts, so that the result is the same whatever the number of parts.
func (j *judgement) sideBySide(rule func(*judgement, *hostView)) {
	parts := make([]judgement, partsOf(len(j.hosts)))
	inParts(len(j.hosts), func(i, from, to int) {
		part := &parts[i]
		*part = *j
		part.findings, part.keys, part.notes, part.next.Present = nil, nil, nil, make(map[string]Presence)
		for _, h := range j.hosts[from:to] {
			rule(part, h)
		}
	})
	for i := range parts {
		j.join(&parts[i])
	}
}

func (j *judgement) join(part *judgement) {
	j.findings = append(j.findings, part.findings...)
	j.keys = append(j.keys, part.keys...)
	j.notes = append(j.notes, part.notes...)
	maps.Copy(j.next.Present, part.next.Present)
}
