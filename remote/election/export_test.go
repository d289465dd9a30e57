package election

// Changed gets a value when something has changed.
func (e *Elector) Changed() <-chan struct{} { return e.changed }
