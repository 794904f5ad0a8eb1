package msg

// Engine is the inbox of the engine, the only actor without a parent.
type Engine interface{ engine() }

// StopEngine ends every pipeline in order, then the limiters, then the engine.
type StopEngine struct{ quiet }

func (*StopEngine) engine() {}
