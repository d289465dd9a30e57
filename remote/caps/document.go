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

// Stamp says which decision one is. A later one has a greater Epoch, or the same and a greater
// Number. The zero Stamp is of none.
type Stamp struct {
	Epoch  uint64 `json:"epoch"` // of the judge
	Number uint64 `json:"number"`
}

func (s Stamp) before(other Stamp) bool {
	return s.Epoch < other.Epoch || s.Epoch == other.Epoch && s.Number < other.Number
}

// version says which holdings these are.
type version struct {
	Epoch  uint64 `json:"epoch"` // of the shard's leader
	Number uint64 `json:"number"`
}

// head is what belongs to a shard's holdings, which are compressed JSON in further values.
type head struct {
	Schema  string  `json:"schema"`
	Version version `json:"version"`
	// Seen is the decision that was known in the cycle before this one: whatever an earlier one
	// took is no longer among the holdings, or was not taken.
	Seen Stamp `json:"seen,omitzero"`
	// Every is about how long it takes until there are later holdings.
	Every time.Duration `json:"every_ns"`
	Parts int           `json:"parts"` // of the values
	Sum   []byte        `json:"sum"`   // of all of them together
	// Left is how many users had too much to be written. What they hold here doesn't count.
	Left int `json:"left,omitempty"`
}

// held is what a shard's leader said last.
type held struct {
	head
	*holdings.Shard
}

// encode returns the values to write: the head, and the parts.
func (h *held) encode() (top []byte, parts [][]byte, err error) {
	data, err := packed.Encode(h.Shard)
	for ; err == nil && len(data) > maxParts*maxPart; data, err = packed.Encode(h.Shard) {
		h.Shard = withoutLargest(h.Shard)
		h.Left++
	}
	if err != nil {
		return nil, nil, err
	}
	sum := sha256.Sum256(data)
	parts = slices.Collect(slices.Chunk(data, maxPart))
	h.Schema, h.Sum, h.Parts = schema, sum[:], len(parts)
	top, err = json.Marshal(h.head)
	return top, parts, err
}

// withoutLargest is a shard without the user who holds the most.
func withoutLargest(s *holdings.Shard) *holdings.Shard {
	largest, most := 0, -1
	for i := range s.Users {
		if n := len(s.Users[i].Devices) + len(s.Users[i].Envs); n > most {
			largest, most = i, n
		}
	}
	left := *s
	if left.Users = append(append([]holdings.User(nil), s.Users[:largest]...), s.Users[min(largest+1, len(s.Users)):]...); len(left.Users) == 0 {
		left = holdings.Shard{Missing: s.Missing}
	}
	return &left
}

func decodeHead(value []byte) (h head, err error) {
	if err = json.Unmarshal(value, &h); err != nil {
		return h, fmt.Errorf("%w: %w", holdings.ErrInvalid, err)
	}
	if h.Schema != schema || h.Parts < 0 || h.Parts > maxParts {
		return h, fmt.Errorf("%w: of another version: %q", holdings.ErrInvalid, h.Schema)
	}
	return h, nil
}

// decode reads all parts together.
func (h *head) decode(data []byte) (*holdings.Shard, error) {
	if sum := sha256.Sum256(data); !bytes.Equal(sum[:], h.Sum) {
		return nil, fmt.Errorf("%w: they are being written", holdings.ErrInvalid)
	}
	text, err := unpack(data)
	if err != nil {
		return nil, err
	}
	return holdings.Decode(text)
}

// decision is what the judge says to a shard.
type decision struct {
	Schema string `json:"schema"`
	Stamp  Stamp  `json:"stamp"`
	// From are the holdings that it was made from, by the numbers of their shards.
	From map[int]version `json:"from"`
	holdings.Decision
}

func (d *decision) encode() ([]byte, error) {
	d.Schema = schema
	return packed.Encode(d)
}

func decodeDecision(value []byte) (*decision, error) {
	text, err := unpack(value)
	if err != nil {
		return nil, err
	}
	d := &decision{}
	if err := json.Unmarshal(text, d); err != nil {
		return nil, fmt.Errorf("%w: %w", holdings.ErrInvalid, err)
	}
	if d.Schema != schema {
		return nil, fmt.Errorf("%w: a decision of another version: %q", holdings.ErrInvalid, d.Schema)
	}
	return d, d.Check()
}

// unpack reads a document of another controller.
func unpack(data []byte) ([]byte, error) {
	text, err := packed.Decode(data, maxText)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", holdings.ErrInvalid, err)
	}
	return text, nil
}
