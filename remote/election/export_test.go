package election

// Leads reports whether this controller leads now.
func (e *Elector) Leads() bool              { return e.Status().Role == Leading }
func (e *Elector) Changed() <-chan struct{} { return e.changed }
