package enforce

import (
	"maps"
	"runtime"
	"sync"
	"time"
)

// minPart is how many hosts are worth a goroutine of their own.
const minPart = 256

// inParts splits n hosts into parts that are handled in parallel, as many as there are
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

// inParallel applies rules to each host, one after the other, and to several hosts at once. A rule
// may change what is of its host, add findings and notes, count presence and watch what is idle; the rest it only
// reads. What the rules add is put together by rule, and then by host: the result is the same as
// if each was applied to all hosts before the next, whatever the number of parts.
func (j *judgement) inParallel(rules ...func(*judgement, *hostView)) {
	parts := make([][]judgement, partsOf(len(j.hosts)))
	inParts(len(j.hosts), func(i, from, to int) {
		byRule := make([]judgement, len(rules))
		for k := range byRule {
			byRule[k] = j.empty()
		}
		for _, h := range j.hosts[from:to] {
			for k, rule := range rules {
				rule(&byRule[k], h)
			}
		}
		parts[i] = byRule
	})
	for k := range rules {
		for _, byRule := range parts {
			j.join(&byRule[k])
		}
	}
}

// empty is the judgement before its rules have found anything.
func (j *judgement) empty() judgement {
	e := *j
	e.findings, e.keys, e.notes = nil, nil, nil
	e.next.Present, e.next.Idle = make(map[string]Presence), make(map[string]time.Time)
	return e
}

func (j *judgement) join(part *judgement) {
	j.findings = append(j.findings, part.findings...)
	j.keys = append(j.keys, part.keys...)
	j.notes = append(j.notes, part.notes...)
	maps.Copy(j.next.Present, part.next.Present)
	maps.Copy(j.next.Idle, part.next.Idle)
}
