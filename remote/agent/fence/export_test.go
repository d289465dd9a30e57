package fence

// Parse decodes a note, for fuzzing.
func Parse(data []byte, path string) (*Note, error) {
	s, err := (&File{Path: path}).file().Decode(data)
	if err != nil {
		return nil, err
	}
	return &s.Note, nil
}
