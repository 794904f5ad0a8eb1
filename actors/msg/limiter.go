package msg

import (
	"time"

	"snowmelt/core/limit"
)

// Limiter is the inbox of an instance's limiter.
type Limiter interface{ limiter() }

// Acquire asks for one permit. The answer is Granted with the same token; a
// client has at most one request for a permit open.
type Acquire struct {
	quiet
	// Client is the path of the actor that asks; Token tells its requests apart.
	Client string
	Token  uint64
	Reply  Ref[*Granted]
	// Pool and PoolMax bound the permits of a group of clients, "" for no such bound.
	Pool    string
	PoolMax int
}

// Release gives a permit back, or withdraws a request that was not granted yet.
type Release struct {
	quiet
	Client  string
	Token   uint64
	Outcome limit.Outcome
	// RetryAfter is the pause that the answer asked for.
	RetryAfter time.Duration
}

// Wake tells the limiter that a pause has ended.
type Wake struct{ quiet }

func (*Acquire) limiter() {}
func (*Release) limiter() {}
func (*Wake) limiter()    {}

// Granted gives a permit to whoever asked with Token.
type Granted struct {
	quiet
	Token uint64
}
