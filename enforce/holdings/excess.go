package holdings

// Excess is what a user holds who is over a cap, and what of it the user loses in this shard.
type Excess struct {
	Used    Amount // in all shards
	Envs    []*Env
	Devices []*Device
}
