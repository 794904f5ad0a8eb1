package msg

// Source is the inbox of a source pipeline.
type Source interface{ source() }

// TableFailed says that a poller cannot go on by itself. It waits for its parent's decision.
type TableFailed struct {
	quiet
	Alias string
	Err   error
}

// TableProgressed says that a poller published or read again after a failure, which resets its backoff.
type TableProgressed struct {
	quiet
	Alias string
}

// RetryTable is the timer of a poller that failed and may try again.
type RetryTable struct {
	quiet
	Alias string
	Token uint64
}

// DrainSource ends a pipeline in order.
type DrainSource struct{ quiet }

func (*TableFailed) source()     {}
func (*TableProgressed) source() {}
func (*RetryTable) source()      {}
func (*DrainSource) source()     {}
