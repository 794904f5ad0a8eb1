package msg

// Directive is what a failure does: the right-hand side of supervisor/policy.go.
type Directive uint8

// The directives, from the narrowest reach to the widest.
const (
	// Retry tries the child again after a backoff; the pipeline stays RUNNING.
	Retry Directive = iota
	// Restart is Retry with a budget: for bugs.
	Restart
	// FailChild stops the child only and keeps the reason.
	FailChild
	// FailTask stops the pipeline.
	FailTask
)

// String returns the name that the printed tree uses.
func (d Directive) String() string {
	return [...]string{"retry", "restart", "fail child", "fail task"}[d]
}
