package fence

// Parse decodes a lease, for fuzzing.
func Parse(data []byte, path string) (*Lease, error) {
	s, err := (&LeaseFile{Path: path}).file().Decode(data, nil)
	if err != nil {
		return nil, err
	}
	return &s.Lease, nil
}
