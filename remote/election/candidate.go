package election

import (
	"encoding/json"
	"time"
)

// Candidate is a controller that takes part in an election, as the others see it.
type Candidate struct {
	ID   string `json:"id"`   // the same after a restart
	Name string `json:"name"` // for people
}

// Leader is the controller that leads, as its key says.
type Leader struct {
	Candidate
	Since time.Time `json:"since"` // by its own clock
}

const schema = "genv.election/1"

// content is the value of the key.
type content struct {
	Schema string `json:"schema"`
	Leader
}

func encode(l Leader) ([]byte, error) { return json.Marshal(content{schema, l}) }

// decode reads the value of a key. Whatever is there, somebody leads: the name is for people.
func decode(value []byte) Leader {
	var c content
	if err := json.Unmarshal(value, &c); err != nil || c.Schema != schema {
		return Leader{Candidate: Candidate{Name: "a controller of another version"}}
	}
	return c.Leader
}
