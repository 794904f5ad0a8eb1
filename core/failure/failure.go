// Package failure says what went wrong: the classes of failure, the table that
// classifies an instance's answers, and the arithmetic of retries. It is pure:
// what a class does to a table or a task is decided in supervisor/policy.go.
package failure

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Class is the kind of a failure. Everything that failed is classified exactly
// once (Invariant 7); retries, supervision and reports act on the class alone.
type Class uint8

// The classes. Their effects are listed in supervisor/policy.go.
const (
	// Bug is the class of every error nobody classified, panics included.
	Bug Class = iota
	// Transient failures heal by themselves: 5xx, resets, unreachable hosts and brokers.
	Transient
	// Ambiguous means that a request left and no answer came.
	Ambiguous
	// RateLimited is a 429; Error.RetryAfter holds the pause, if one was named.
	RateLimited
	// TooLarge means that a page must shrink: body over the cap, time-out, quota.
	TooLarge
	// Unavailable means that the circuit breaker of the instance is open.
	Unavailable
	// Auth is a refused credential.
	Auth
	// Permission is a 403 that concerns a table.
	Permission
	// NotFound is a 404, or a table that does not exist.
	NotFound
	// Conflict is a 409 that is not called transient by its body.
	Conflict
	// RecordError is a 400 or 422: the query or the record is refused.
	RecordError
	// Permanent is every other refusal of the instance.
	Permanent
	// Breach means that answers contradict the query: rows outside the bounds, out of order.
	Breach
	// BadRow is a row without a usable sys_id or timestamp, under bad.row.behavior=fail.
	BadRow
	// Oversized is a record over the limit of its topic.
	Oversized
	// Misconfigured is a setting that the instance or the broker contradicts.
	Misconfigured
	// TopicRefused is a topic that would lose or reorder what is written to it.
	TopicRefused
	// BrokerRefused is an authorisation or authentication refusal of Kafka.
	BrokerRefused
	// Aborted means that a transaction was certainly not committed.
	Aborted
	// OutcomeUnknown means that a transaction may have been committed: fence, then read the cursor.
	OutcomeUnknown
	// Fenced means that another process owns the table.
	Fenced
	// RecordStops is a permanent record error under behavior.on.api.errors=fail.
	RecordStops

	classes // number of classes, for tests that walk them
)

var classNames = [...]string{
	"BUG", "TRANSIENT", "AMBIGUOUS", "RATE_LIMITED", "TOO_LARGE", "UNAVAILABLE", "AUTH", "PERMISSION",
	"NOT_FOUND", "CONFLICT", "RECORD_ERROR", "PERMANENT", "BREACH", "BAD_ROW", "OVERSIZED", "MISCONFIGURED",
	"TOPIC_REFUSED", "BROKER_REFUSED", "ABORTED", "OUTCOME_UNKNOWN", "FENCED", "RECORD_STOPS",
}

// String returns the name that logs, reports and metrics use.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return fmt.Sprintf("CLASS_%d", uint8(c))
}

// Classes returns every class, in order of declaration.
func Classes() []Class {
	all := make([]Class, classes)
	for i := range all {
		all[i] = Class(i)
	}
	return all
}

// Error is a classified failure. Its text says what happened, where and what
// to do; it never holds a secret (Invariant 8).
type Error struct {
	// Class is the kind of the failure.
	Class Class
	// Op is what was being done, in the gerund: "reading a page of incident".
	Op string
	// Detail is what went wrong, in the words of whoever refused, cut and redacted.
	Detail string
	// Hint tells the operator what to do; empty when there is nothing to do but wait.
	Hint string
	// Status is the HTTP status, 0 when no answer came.
	Status int
	// RequestID is the X-Request-Id of the attempt, if there was one.
	RequestID string
	// Shrink says that a smaller page may succeed: time-outs, cut bodies.
	Shrink bool
	// TableWide says that a refusal concerns the table, not one record of it.
	TableWide bool
	// Input says that a pipeline's input cannot be read and will not heal: exit code 4 (failures.md section 6).
	Input bool
	// RetryAfter is the pause that the instance asked for, 0 when it named none.
	RetryAfter time.Duration
	// Err is the cause, if there is one.
	Err error
}

// Error returns operation, detail, cause and hint in one line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Status != 0 {
		fmt.Fprintf(&b, ": status %d", e.Status)
	}
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	if e.Hint != "" {
		b.WriteString(" (" + e.Hint + ")")
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ClassOf returns the class of the first *Error in err's chain, Bug when there is none.
func ClassOf(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return Bug
}
