// Package msg holds every message that crosses an actor's boundary, one file per
// receiver. The inbox of an actor is a sealed interface: commands are imperative
// (Acquire), facts are past tense (PageRead).
package msg

// Ref is a typed reference to an actor: what it can be told, and nothing else.
type Ref[M any] interface {
	// Tell puts a message into the actor's mailbox. It never blocks; a message to an
	// actor that is gone is dropped.
	Tell(m M)
}

// quiet is embedded in every message: one that reaches an actor that has just
// stopped is no event worth a line in the log.
type quiet struct{}

// IgnoreDeadLetterLogging marks the message for protoactor.
func (quiet) IgnoreDeadLetterLogging() {}
