package disk

// MaxFileSize is a limit that the tests pass.
const MaxFileSize = maxFileSize

// OnStep calls f between the steps of a write.
func (s *Store) OnStep(f func(step string)) { s.step = f }
