package caps

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/holdings"
	"github.com/seed-3119e985/genv/remote/packed"
	"github.com/seed-3119e985/genv/snapshot"
)

const (
	schema = "genv.controller.caps/1"
	// maxPart is how long a value may be: etcd's requests have at most 1.5 MiB, and in them
	// four bytes stand for three.
	maxPart  = 1 << 20 * 3 / 4
	maxParts = 16
	// maxText is how long a document may be that is read.
	maxText = 128 << 20
)

// stamp orders what judges, or the leaders of a shard, wrote: by the epoch of the writer, then by
// number. The zero stamp is of nothing.
type stamp struct {
	Epoch  uint64 `json:"epoch"`
	Number uint64 `json:"number"`
}

func (s stamp) before(other stamp) bool {
	return s.Epoch < other.Epoch || s.Epoch == other.Epoch && s.Number < other.Number
}

// head is what belongs to a shard's holdings, which are compressed JSON in further values.
type head struct {
	Schema  string `json:"schema"`
	Version stamp  `json:"version"`
	// Seen is the decision that was known in the cycle before this one, so the hosts were looked at
	// later: whatever an earlier one took is no longer among the holdings, or was not taken.
	Seen stamp `json:"seen,omitzero"`
	// Every is about how long it takes until there are later holdings.
	Every time.Duration `json:"every_ns"`
	Parts int           `json:"parts"` // of the values
	Sum   []byte        `json:"sum"`   // of all of them together
	// Left is how many users had too much to be written. What they hold here doesn't count.
	Left int `json:"left,omitempty"`
}

// document is what a shard's leader published last.
type document struct {
	head
	*holdings.Shard
}

// encode returns the values to write: the head, and the parts.
func (d *document) encode() (top []byte, parts [][]byte, err error) {
	data, err := packed.Encode(d.Shard)
	for err == nil && len(data) > maxParts*maxPart {
		users := len(d.Users)
		d.Shard = withoutLargest(d.Shard, 1-float64(maxParts*maxPart)/float64(len(data)))
		d.Left += users - len(d.Users)
		data, err = packed.Encode(d.Shard)
	}
	if err != nil {
		return nil, nil, err
	}
	sum := sha256.Sum256(data)
	parts = slices.Collect(slices.Chunk(data, maxPart))
	d.Schema, d.Sum, d.Parts = schema, sum[:], len(parts)
	top, err = json.Marshal(d.head)
	return top, parts, err
}

// withoutLargest is a shard without the users who hold the most: as many as hold a share of all, at least one.
func withoutLargest(s *holdings.Shard, share float64) *holdings.Shard {
	size := func(u holdings.User) int { return 1 + len(u.Devices) + len(u.Envs) }
	all := 0
	for _, u := range s.Users {
		all += size(u)
	}
	bySize := slices.SortedStableFunc(slices.Values(s.Users), func(a, b holdings.User) int { return size(b) - size(a) })
	removed, out := 0, make(map[snapshot.Username]bool)
	for _, u := range bySize {
		if removed > 0 && float64(removed) >= share*float64(all) {
			break
		}
		removed, out[u.Name] = removed+size(u), true
	}
	left := *s
	if left.Users = slices.DeleteFunc(slices.Clone(s.Users), func(u holdings.User) bool { return out[u.Name] }); len(left.Users) == 0 {
		left = holdings.Shard{Missing: s.Missing}
	}
	return &left
}

func decodeHead(value []byte) (h head, err error) {
	if err = json.Unmarshal(value, &h); err != nil {
		return h, fmt.Errorf("%w: %w", holdings.ErrInvalid, err)
	}
	if h.Schema != schema || h.Parts < 0 || h.Parts > maxParts {
		return h, fmt.Errorf("%w: unknown schema %q, or too many parts", holdings.ErrInvalid, h.Schema)
	}
	return h, nil
}

// decode reads all parts together.
func (h *head) decode(data []byte) (*holdings.Shard, error) {
	if sum := sha256.Sum256(data); !bytes.Equal(sum[:], h.Sum) {
		return nil, fmt.Errorf("%w: checksum mismatch (being written?)", holdings.ErrInvalid)
	}
	s := &holdings.Shard{}
	if err := unpack(data, s); err != nil {
		return nil, err
	}
	return s, nil
}

// decision is what the judge says to a shard.
type decision struct {
	Schema string `json:"schema"`
	Stamp  stamp  `json:"stamp"`
	// From are the holdings that it was made from, by the numbers of their shards.
	From map[int]stamp `json:"from"`
	holdings.Decision
}

func (d *decision) encode() ([]byte, error) {
	d.Schema = schema
	return packed.Encode(d)
}

func decodeDecision(value []byte) (*decision, error) {
	d := &decision{}
	if err := unpack(value, d); err != nil {
		return nil, err
	}
	if d.Schema != schema {
		return nil, fmt.Errorf("%w: unknown schema %q of a decision", holdings.ErrInvalid, d.Schema)
	}
	return d, nil
}

// unpack reads a document of another controller.
func unpack(data []byte, to interface{ Check() error }) error {
	if err := packed.Decode(data, maxText, to); err != nil {
		return fmt.Errorf("%w: %w", holdings.ErrInvalid, err)
	}
	return to.Check()
}
