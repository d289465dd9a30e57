package manual

// exitStatus are the exit codes of a command.
func (p *Page) exitStatus() []Entry { return nil }

func (p *Page) environment() []Entry { return nil }

func (p *Page) files() []Entry { return nil }

// about is what a page says beyond the flags.
type about struct {
	description []string
	examples    []Example
}

func describe(_ string) about {
	return about{}
}
